"""Root filesystems: the `host` image, directories, and later registries and archives."""
