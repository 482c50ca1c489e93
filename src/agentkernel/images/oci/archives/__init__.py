"""Images in files: what `docker save` writes and OCI layouts, read and written as a stream."""
