"""The native engine: our own launcher and Linux namespaces. Shared kernel, no root, no daemon."""
