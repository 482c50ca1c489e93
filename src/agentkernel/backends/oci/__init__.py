"""Sandboxes made by OCI runtimes: one engine, with runc, crun or gVisor's runsc as parameter."""
