"""The daemon: the kernel behind an HTTP API on a unix socket."""
