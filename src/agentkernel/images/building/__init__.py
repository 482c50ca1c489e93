"""What a build makes without a sandbox: layers from files, and configs from steps."""
