"""Engines that hold sandboxes. `base` is the contract; each engine is one file or folder."""
