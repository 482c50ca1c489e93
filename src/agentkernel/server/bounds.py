"""What the server allows a client: how many, how much, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of one server. docs/reference/http-api.md names the same numbers."""

    max_streams: int = 1024
    max_connections: int = 2048
    # What of these callers over a network may have: the socket is never without room.
    max_network_streams: int = 512
    max_network_connections: int = 1024
    # Of one token: so many at once, then so many in a second.
    token_burst: int = 400
    token_per_second: float = 100.0
    # Of one address, requests without a valid token.
    failure_burst: int = 20
    failures_per_second: float = 0.2
    # Tokens and addresses that are counted; of more, the one that was quiet longest is forgotten.
    max_counted: int = 4096
    # TLS: so many that are not done yet, each for so long.
    max_handshakes: int = 256
    handshake_seconds: float = 10.0
    max_header_bytes: int = 64 << 10
    header_seconds: float = 30.0
    body_seconds: float = 30.0
    first_message_seconds: float = 30.0
    # Between two pieces of a file.
    piece_seconds: float = 60.0
    # A whole file or tree, in or out.
    transfer_seconds: float = 3600.0
    keep_alive_seconds: int = 75
    # How long an answer may wait for a client that does not read; a WebSocket may for ever.
    unread_seconds: float = 300.0
    heartbeat_seconds: float = 15.0
    # How long the server behind a preview may take for the beginning of an answer.
    preview_answer_seconds: float = 300.0
    # How long a client that does not read may hold up the last words.
    last_words_seconds: float = 2.0
