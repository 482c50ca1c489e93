"""Sandboxes made by OCI runtimes (runc, crun, gVisor's runsc): one engine, the runtime a parameter."""
