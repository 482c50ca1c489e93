"""What a sandbox is, its life and its state. No HTTP and no command line in here."""
