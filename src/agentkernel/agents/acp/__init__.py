"""The Agent Client Protocol: its lines, its paths, and a client's services inside a sandbox."""
