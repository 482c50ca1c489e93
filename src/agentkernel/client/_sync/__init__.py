# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""The blocking client. After a change run `tools/generate_sync_client.py`."""
