"""Secrets: kept on the host, known inside by a placeholder only."""
