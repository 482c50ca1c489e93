"""AI agents that run in sandboxes: what is known of each, as data, and what is made of it."""
