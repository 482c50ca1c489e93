"""uvicorn's protocols with what it leaves to others: who is there, how much, and for how long."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from agentkernel.server.bounds import Bounds
from agentkernel.server.problems import RequestError, problem_bytes

log = logging.getLogger("agentkernel.server")


class Peer(NamedTuple):
    pid: int
    uid: int


def peer_of(fd: int) -> Peer:
    """The process that connected, as the kernel wrote it down then."""
    sock = socket.socket(fileno=fd)
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    finally:
        sock.detach()
    pid, uid, _ = struct.unpack("iII", credentials)
    return Peer(pid, uid)


def hung_up(transport: asyncio.Transport) -> bool:
    """True if the other end is gone, also while nothing is read from it."""
    if transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)  # POLLHUP is always told
    return bool(poll.poll(0))


class HttpProtocol(HttpToolsProtocol):
    """A connection of our own uid, whose headers are bounded in size and time."""

    # Is told of a process that has no business here.
    on_stranger: Callable[[Peer], None] | None = None

    def __init__(self, bounds: Bounds, **options: Any) -> None:
        super().__init__(**options)
        self._bounds = bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header_bytes: int | None = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        super().connection_made(transport)
        self._peer = peer_of(transport.get_extra_info("socket").fileno())
        if self._peer.uid != os.getuid():
            log.warning("a process of uid %d was turned away", self._peer.uid)
            self._refuse()
            if self.on_stranger:
                self.on_stranger(self._peer)
        elif len(self.connections) > self._bounds.max_connections:
            log.warning("%d connections are open: one was turned away", len(self.connections))
            self._refuse()
        else:
            self._expect_headers()

    def _refuse(self) -> None:
        self._refused = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._header_bytes is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        most = self._bounds.max_header_bytes
        if self._header_bytes is not None and self._header_bytes > most:
            self._give_up(RequestError(431, f"headers have at most {most >> 10} KiB"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["hung_up"] = partial(hung_up, self.transport)
        self.scope["state"]["peer"] = self._peer
        if self._header_bytes is None:
            self._header_bytes = 0
            self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_done()
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self._bounds.header_seconds, self._too_slow)

    def _headers_done(self) -> None:
        self._header_bytes = None
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        seconds = self._bounds.header_seconds
        self._give_up(RequestError(408, f"no request came within {seconds:g} s"))

    def send_400_response(self, msg: str) -> None:
        self._give_up(RequestError(400, "this is not HTTP/1.1"))

    def _give_up(self, error: RequestError) -> None:
        """The last answer of this connection, unless one is under way."""
        self._headers_done()
        self._refused = True
        if self.cycle is None or self.cycle.response_complete:
            status, body = problem_bytes(error)
            head = [b"HTTP/1.1 %d Error" % status, b"content-type: application/problem+json"]
            head += [name + b": " + value for name, value in self.server_state.default_headers]
            head += [b"content-length: %d" % len(body), b"connection: close", b"", body]
            self.transport.write(b"\r\n".join(head))
        self.transport.close()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Made by HttpProtocol for a connection it has let in."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:  # None: it was no proper handshake
            scope["state"]["hung_up"] = partial(hung_up, self.transport)
            descriptor = self.transport.get_extra_info("socket").fileno()
            scope["state"]["peer"] = peer_of(descriptor)
