"""The sandboxes' way out: what is allowed, what enforces it, secrets that stay outside."""
