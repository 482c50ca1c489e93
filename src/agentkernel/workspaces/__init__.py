"""A project of the host in a sandbox: which directory, what of it is shown, what became of it."""
