"""What the server allows a client: how many, how much, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of one server. docs/reference/http-api.md names the same numbers."""

    max_streams: int = 1024
    max_connections: int = 2048
    max_header_bytes: int = 64 << 10
    header_seconds: float = 30.0
    body_seconds: float = 30.0
    first_message_seconds: float = 30.0
    # Between two pieces of a file.
    piece_seconds: float = 60.0
    # A whole file or tree, in or out.
    transfer_seconds: float = 3600.0
    keep_alive_seconds: int = 75
    heartbeat_seconds: float = 15.0
    # How long a client that does not read may hold up the last words.
    last_words_seconds: float = 2.0
