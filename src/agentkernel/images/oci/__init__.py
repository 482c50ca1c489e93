"""Images of the Open Container Initiative: named, fetched, kept and unpacked without Docker."""
