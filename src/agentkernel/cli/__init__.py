"""The command line. Only `main` is imported at start; each command loads what it needs."""
