"""One end of an intercepted connection: bytes in and out, with bounded memory and deadlines.

asyncio's own streams copy every byte twice more; this keeps what the transport gave as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

HELD_BYTES = 1 << 20
"""How much may wait to be read, or to be written, before the side it comes from is stopped."""
HANDSHAKE_SECONDS = 20.0
STALLED_SECONDS = 3600.0
"""How long one side may take the other's time without any progress: long polls are legitimate."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 1 << 20


class Lost(Exception):
    """The connection is gone, or stopped before its time."""


class Wire(asyncio.Protocol):
    """Made by `accept_wire` and `connect_wire`; always closed by whoever made it."""

    def __init__(self, *, halves: bool) -> None:
        # TLS can't be closed in one direction only: with it an end is the end of both.
        self._halves = halves
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._paused = False
        self._ended = False
        self._lost = False
        self._fault: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._closed = asyncio.get_running_loop().create_future()
        self.on_lost: Callable[[], None] | None = None
        self.on_ended: Callable[[], None] | None = None

    # --- what the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HELD_BYTES)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        if self._held >= HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake_reader()
        if self.on_ended is not None:
            self.on_ended()
        return self._halves

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._lost = True
        self._fault = exc
        self._wake_reader()
        self._wake_writer()
        if not self._closed.done():
            self._closed.set_result(None)
        if self.on_lost is not None:
            self.on_lost()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake_writer()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- what the session calls ---

    @property
    def ended(self) -> bool:
        """True if nothing more will come, though something may be held."""
        return self._ended

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def held(self) -> int:
        return self._held

    @property
    def tls(self) -> ssl.SSLObject | None:
        found = self._transport.get_extra_info("ssl_object") if self._transport else None
        return cast("ssl.SSLObject | None", found)

    async def wait(self, seconds: float) -> None:
        """Until there is something to read, or the end. Raises TimeoutError."""
        if not self._chunks and not self._ended:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._reader
            finally:
                self._reader = None

    async def read(self, seconds: float = STALLED_SECONDS) -> bytes:
        """What has come, at least a byte; nothing at the end. Raises Lost, TimeoutError."""
        await self.wait(seconds)
        if self._chunks:
            data = self._chunks.popleft()
            self._held -= len(data)
            if self._paused and self._held < HELD_BYTES // 2 and not self._lost:
                self._paused = False
                assert self._transport is not None
                self._transport.resume_reading()
            return data
        if self._fault is not None:
            # Cut off, not ended: the rest of what was on its way is missing.
            raise Lost from self._fault
        return b""

    def unread(self, data: bytes) -> None:
        """Puts back what was read too much."""
        if data:
            self._chunks.appendleft(data)
            self._held += len(data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or self._transport is None or self._transport.is_closing():
            raise Lost
        self._transport.write(data)

    async def drain(self, seconds: float = STALLED_SECONDS) -> None:
        """Waits until what was written is mostly gone. Raises Lost, TimeoutError."""
        if self._writing_paused and not self._lost:
            self._writable = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._writable
            finally:
                self._writable = None
        if self._lost:
            raise Lost

    def abort(self) -> None:
        """Drops the connection; what was not yet sent is not sent any more."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self, *, reading: bool = True) -> None:
        """Sends what was written, and tells the other side that this is all. `reading`: it may be
        sending still, and is heard out for a moment: a kernel that closes a socket with bytes
        unread resets it, and the other side would lose what was sent last. Never raises, never
        leaves the connection open."""
        transport = self._transport
        if transport is None or self._lost:
            return
        try:
            with contextlib.suppress(TimeoutError, Lost):
                async with asyncio.timeout(LINGER_SECONDS):
                    # Not 0: over TLS that stops writing for good, also where nothing waits.
                    transport.set_write_buffer_limits(high=1)
                    await self.drain()
                    if self._halves:
                        transport.write_eof()
                    if reading:
                        await self._hear_out()
            transport.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await asyncio.shield(self._closed)
        finally:
            transport.abort()

    async def _hear_out(self) -> None:
        left = LINGER_BYTES
        while left > 0 and (data := await self.read()):
            left -= len(data)


async def accept_wire(sock: socket.socket, context: ssl.SSLContext | None) -> Wire:
    """The guest's side. Owns `sock` from here on. Raises OSError, of which TLS's are some."""
    # uvloop's call gives back a protocol of its own where there is TLS, so this one is kept here.
    wire = Wire(halves=context is None)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: wire,
            sock,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
            ssl_shutdown_timeout=LINGER_SECONDS if context else None,
        )
    except BaseException:
        sock.close()
        raise
    return wire


async def connect_wire(sock: socket.socket, context: ssl.SSLContext | None, name: str) -> Wire:
    """The far side, on a socket that is connected. With a context, `name` is verified before this
    returns. Raises OSError, of which TLS's are some."""
    wire = Wire(halves=context is None)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: wire,
            sock=sock,
            ssl=context,
            server_hostname=name if context else None,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
            ssl_shutdown_timeout=LINGER_SECONDS if context else None,
        )
    except BaseException:
        sock.close()
        raise
    return wire
