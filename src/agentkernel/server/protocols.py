"""uvicorn's protocols with what it leaves to others: who is there, how much, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from httptools import HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from agentkernel.server.bounds import Bounds
from agentkernel.server.problems import RequestError, problem_bytes

MAX_PIECES: Final = 4096
MAX_UNREAD_BYTES: Final = 1 << 20
MAX_BEYOND_BYTES: Final = 64 << 10
CLOSE_SECONDS: Final = 12.0

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
    connection = transport.get_extra_info("socket")
    # POLLHUP is always told. Over a network it comes when both ends have closed, so there one that
    # will send nothing more counts as gone, as it does where it is read from.
    poll.register(connection.fileno(), 0 if _is_local(connection) else select.POLLRDHUP)
    return bool(poll.poll(0))


def _is_local(connection: socket.socket) -> bool:
    return connection.family == socket.AF_UNIX


def cut(transport: asyncio.Transport) -> None:
    """Ends a connection whose other end does not read. The kernel would go on trying for minutes to
    deliver what it has taken."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not _is_local(connection):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class _Corked:
    """A transport for one answer: its head goes with the first of its body, if that comes at once.
    Two writes would wake the client twice."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._begun = False

    def write(self, data: bytes) -> None:
        if self._begun:
            head, self._head = self._head, None
            self._transport.write(data if head is None else head + data)
        else:
            self._begun, self._head = True, data
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class HttpProtocol(HttpToolsProtocol):
    """A connection whose headers are bounded in size and time; on the socket one of our own uid."""

    # Is told of a process that has no business here.
    on_stranger: Callable[[Peer], None] | None = None
    # Whether a request, by its headers and address, is a preview's: it may become anything.
    is_preview: Callable[[list[tuple[bytes, bytes]], bytes], bool] | None = None
    # What came behind a request that asked for something else than HTTP.
    _beyond: bytearray | None = None

    def __init__(self, bounds: Bounds, **options: Any) -> None:
        super().__init__(**options)
        self._bounds = bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header_bytes: int | None = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        self._unsent: int | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._counted = 0
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        self._peer = peer_of(connection.fileno()) if _is_local(connection) else None
        if self._peer is not None and self._peer.uid != os.getuid():
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
        self._reads_again()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._beyond is not None:
            self._went_beyond(data)
            return
        if self._header_bytes is not None:
            self._header_bytes += len(data)
        self._received = data
        super().data_received(data)
        most = self._bounds.max_header_bytes
        if self._header_bytes is not None and self._header_bytes > most:
            self._give_up(self._headers_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._counted = 0
        self.scope["state"]["hung_up"] = partial(hung_up, self.transport)
        self.scope["state"]["peer"] = self._peer
        self.scope["state"]["connection"] = self
        if self._header_bytes is None:
            self._header_bytes = 0
            self._expect_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header(len(name) + len(value) + 4)

    def _count_header(self, size: int) -> None:
        """All of them may come at once, before anybody has counted what was received."""
        self._counted += size
        if self._counted > self._bounds.max_header_bytes:
            raise self._headers_too_large()  # httptools stops, and `send_400_response` is called

    def _headers_too_large(self) -> RequestError:
        most = self._bounds.max_header_bytes
        return RequestError(431, f"headers have at most {most >> 10} KiB")

    def on_headers_complete(self) -> None:
        self._headers_done()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            # Its task has not begun yet.
            self.cycle.transport = _Corked(self.transport, self.loop)  # type: ignore[assignment]

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
        if self._counted > self._bounds.max_header_bytes:
            self._give_up(self._headers_too_large())
        else:
            self._give_up(RequestError(400, "this is not HTTP/1.1"))

    def _give_up(self, error: RequestError) -> None:
        """The last answer of this connection, unless one is under way."""
        self._headers_done()
        self._refused = True
        cycle = self.cycle
        if cycle is not None and cycle.more_body and not cycle.response_started:
            # Its headers were fine and its body is not: the handler hears that nobody is there.
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or cycle.response_complete or cycle.disconnected:
            status, body = problem_bytes(error)
            head = [b"HTTP/1.1 %d Error" % status, b"content-type: application/problem+json"]
            head += [name + b": " + value for name, value in self.server_state.default_headers]
            head += [b"content-length: %d" % len(body), b"connection: close", b"", body]
            self.transport.write(b"\r\n".join(head))
            self._linger()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        if isinstance(corked := self.cycle.transport, _Corked):
            corked.flush()
        super().on_response_complete()
        unread = self.cycle.response_complete and self.cycle.more_body
        if unread and not self.pipeline and not self.transport.is_closing():
            # The rest of a body that nobody wants has no bound in size or time: it is not waited
            # for, and so nothing can follow it.
            self._linger()
        elif self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.timeout_keep_alive_handler()

    def _linger(self) -> None:
        """Closes, but not at once: what is not read when a connection is closed makes the kernel
        throw away our last answer, too."""
        self._refused = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline = self.loop.call_later(self._bounds.last_words_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._bounds.unread_seconds, cut, self.transport)

    def resume_writing(self) -> None:
        self._reads_again()
        super().resume_writing()

    def _reads_again(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    # -- previews -------------------------------------------------------------------------------

    def _should_upgrade(self) -> bool:
        """A preview's WebSocket is the guest's: it is passed on as it is."""
        return not self._passes_on() and super()._should_upgrade()

    def _passes_on(self) -> bool:
        return self.is_preview is not None and self.is_preview(self.headers, self.url)

    def _unsupported_upgrade_warning(self) -> None:
        """Called by `data_received` where the parser stopped, which the error tells."""
        if not self._passes_on():
            super()._unsupported_upgrade_warning()
            return
        self._beyond = bytearray()
        error = sys.exc_info()[1]
        if isinstance(error, HttpParserUpgrade):
            self._went_beyond(self._received[error.args[0] :])

    def _went_beyond(self, data: bytes) -> None:
        assert self._beyond is not None
        self._beyond += data
        if len(self._beyond) > MAX_BEYOND_BYTES:
            self.flow.pause_reading()

    @contextlib.contextmanager
    def taken_over(self) -> Iterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """The connection itself, for one whose request was for something else than HTTP.

        Preconditions: a preview's request, which asked for an upgrade and was not answered yet.
        """
        assert self._beyond is not None
        self._headers_done()
        self._reads_again()
        self._unset_keepalive_if_required()
        self.cycle.disconnected = True  # what is written from now on is none of HTTP's
        reader = asyncio.StreamReader(limit=MAX_BEYOND_BYTES, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        if self._beyond:
            reader.feed_data(bytes(self._beyond))
        self.flow.resume_reading()
        writer = asyncio.StreamWriter(self.transport, protocol, reader, self.loop)
        try:
            yield reader, writer
        finally:
            self.transport.close()
            self.connections.discard(self)

    def abandon(self) -> None:
        """Ends an answer that can't be completed so that nobody takes it for complete."""
        self.cycle.disconnected = True
        if not self.transport.is_closing():
            cut(self.transport)

    def handle_websocket_upgrade(self) -> None:
        self._reads_again()  # a stream may wait for its reader as long as it likes
        super().handle_websocket_upgrade()

    def timeout_keep_alive_handler(self) -> None:
        """An answer that is not being read does not keep a connection for ever."""
        left = self.transport.get_write_buffer_size()
        if left and (self._unsent is None or left < self._unsent):
            self._unsent = left
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif left:
            cut(self.transport)
        else:
            super().timeout_keep_alive_handler()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Made by HttpProtocol for a connection it has let in."""

    _cut: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:  # None: it was no proper handshake
            scope["state"]["hung_up"] = partial(hung_up, self.transport)
            connection = self.transport.get_extra_info("socket")
            local = _is_local(connection)
            scope["state"]["peer"] = peer_of(connection.fileno()) if local else None

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Nobody serves this connection any more. One that does not read our last words is cut."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._cut = self.loop.call_later(CLOSE_SECONDS, cut, self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut is not None:
            self._cut.cancel()
        super().connection_lost(exc)

    def send_receive_event_to_app(self) -> None:
        """Text that is none ends the stream, and is not worth a page in the log."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        """The size of a message is bounded; that of one in empty pieces has to be, too."""
        if len(self.frames) >= MAX_PIECES:
            self.transport.abort()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Whoever asks and does not read the answers makes us keep them."""
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            cut(self.transport)
            return
        super().handle_ping()
