"""What every engine is held to, and how to tell that a sandbox has left nothing behind."""
