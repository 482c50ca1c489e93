"""Agents in sandboxes: their kits, their logins, their sessions."""
