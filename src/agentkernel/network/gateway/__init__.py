"""The process that holds every sandbox's way out. Without it there is none."""
