"""One end of an intercepted connection: bytes in and out, with bounded memory and deadlines.

On raw sockets, also for TLS. The event loops' own TLS drops what was received but not yet read when
the other side closes while reading is paused, which is every big response to a slow reader; nor do
they tell a connection that ended from one that was cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Literal

PIECE_BYTES = 256 << 10
HANDSHAKE_SECONDS = 20.0
STALLED_SECONDS = 3600.0
"""How long one side may take the other's time without any progress: long polls are legitimate."""
TURN_BYTES = 512 << 10
WRITE_COSTS = 4 << 10
"""How many bytes are written before others get a turn, and how many a write of its own counts."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 1 << 20

Want = Literal["read", "write"]

_RESET = struct.pack("ii", 1, 0)
# One for all: what is read is copied out of it before anything else runs.
_BUFFER = memoryview(bytearray(PIECE_BYTES))


class Lost(Exception):
    """The connection is gone, or was dropped."""


class Wire:
    """Made by `accept_wire` and `connect_wire`; always closed by whoever made it.

    Nothing is kept of what is written, and at most one piece of what comes. One task may read while
    another one writes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._held: deque[bytes] = deque()
        self._readers: list[asyncio.Future[None]] = []
        self._writers: list[asyncio.Future[None]] = []
        self._on_end: Callable[[], None] | None = None
        self._turn = 0
        self.ended = False
        """Nothing more will come, though something may be held."""
        self.cut = False
        """It ended without saying so, which TLS does."""
        self.lost = False

    @property
    def held(self) -> bool:
        """True if something can be read at once."""
        return bool(self._held)

    @property
    def tls(self) -> ssl.SSLSocket | None:
        return self._sock if isinstance(self._sock, ssl.SSLSocket) else None

    # --- reading ---

    async def wait(self, seconds: float) -> None:
        """Until there is something to read, or the end. Raises Lost, TimeoutError."""
        while not self._held and not self.ended:
            if want := self._fill():
                await self._until(want, seconds)

    async def read(self, seconds: float = STALLED_SECONDS) -> bytes:
        """What has come, at least a byte; nothing at the end. Raises Lost, TimeoutError."""
        await self.wait(seconds)
        return self._held.popleft() if self._held else b""

    def unread(self, data: bytes) -> None:
        """Puts back what was read too much."""
        if data:
            self._held.appendleft(data)

    def _fill(self) -> Want | None:
        """Reads what is there, at most a piece. What has to be waited for if that is nothing."""
        if self.lost:
            raise Lost
        got = 0
        want: Want | None = None
        try:
            # TLS gives a record at a time.
            while got < PIECE_BYTES and (count := self._sock.recv_into(_BUFFER[got:])):
                got += count
                if self.tls is None:
                    break
            else:
                self.ended = got < PIECE_BYTES
        except (BlockingIOError, ssl.SSLWantReadError):
            want = "read"
        except ssl.SSLWantWriteError:
            want = "write"
        except ssl.SSLEOFError:
            self.ended = self.cut = True
        except OSError as exc:
            if not got:
                self.abort()
                raise Lost from exc
        if got:
            self._held.append(bytes(_BUFFER[:got]))
            return None
        return want

    def is_quiet(self) -> bool:
        """True if the other side is there, and has said nothing that was not read."""
        with contextlib.suppress(Lost):
            if not self._held and not self.ended:
                self._fill()
        return not (self._held or self.ended or self.lost)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Calls `on_end`, once, when the other side ends or is lost while nobody reads. It is not
        noticed behind a piece that waits to be read."""
        self._on_end = on_end
        if self.ended or self.lost:
            self._loop.call_soon(self._note_end)
        elif not self._held:
            self._loop.add_reader(self._fd, self._readable)

    def unwatch(self) -> None:
        self._on_end = None
        if not self._readers and not self.lost:
            self._loop.remove_reader(self._fd)

    def _note_end(self) -> None:
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    # --- writing ---

    async def write(self, data: bytes, seconds: float = STALLED_SECONDS) -> None:
        """Returns when all of it is with the kernel. Raises Lost, TimeoutError."""
        self._turn += len(data) + WRITE_COSTS
        if self._turn > TURN_BYTES:
            # Where both sides are fast nothing ever has to wait; other connections would.
            self._turn = 0
            await asyncio.sleep(0)
        rest = memoryview(data)
        while rest:
            if self.lost:
                raise Lost
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                await self._until("write", seconds)
            except ssl.SSLWantReadError:
                await self._until("read", seconds)
            except OSError as exc:
                # What came before may be worth reading still: a server may refuse a body and say
                # why.
                raise Lost from exc

    # --- waiting ---

    async def _until(self, want: Want, seconds: float) -> None:
        ready = self._loop.create_future()
        waiting = self._readers if want == "read" else self._writers
        if not waiting:
            if want == "read":
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.add_writer(self._fd, self._writable)
        waiting.append(ready)
        try:
            async with asyncio.timeout(seconds):
                await ready
        finally:
            if ready in waiting:  # it was not woken
                waiting.remove(ready)
                if not waiting and not self.lost:
                    if want == "read":
                        self._loop.remove_reader(self._fd)
                    else:
                        self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._readers:
            _wake(self._readers)
            return
        with contextlib.suppress(Lost):
            if self._fill() == "read" and self._on_end is not None:
                self._loop.add_reader(self._fd, self._readable)
        if self.ended or self.lost:
            self._note_end()

    def _writable(self) -> None:
        self._loop.remove_writer(self._fd)
        _wake(self._writers)

    async def shake_hands(self, tls: ssl.SSLSocket) -> None:
        """Raises OSError."""
        while True:
            try:
                tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._until("read", HANDSHAKE_SECONDS)
            except ssl.SSLWantWriteError:
                await self._until("write", HANDSHAKE_SECONDS)

    # --- the end ---

    def abort(self) -> None:
        """Drops the connection at once, so that the other side takes nothing of it for whole."""
        if self.lost:
            return
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._end()

    def _end(self) -> None:
        self.lost = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        _wake(self._readers)
        _wake(self._writers)

    async def close(self) -> None:
        """Tells the other side that this is all, and hears it out for a moment: a kernel that
        closes a socket with bytes unread resets it, and the other side would lose what was sent
        last. Never raises, never leaves the connection open."""
        if self.lost:
            return
        try:
            with contextlib.suppress(OSError, ValueError, Lost, TimeoutError):
                if isinstance(self._sock, ssl.SSLSocket):
                    with contextlib.suppress(OSError, ValueError):
                        self._sock.unwrap()  # says it; the other's goodbye is not waited for
                self._sock.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._hear_out()
        finally:
            if not self.lost:
                self._end()

    async def _hear_out(self) -> None:
        """As bytes: nobody asks what they say."""
        left = LINGER_BYTES
        while left > 0:
            try:
                count = socket.socket.recv_into(self._sock, _BUFFER)
            except BlockingIOError:
                await self._until("read", LINGER_SECONDS)
                continue
            if not count:
                return
            left -= count


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for ready in waiting:
        if not ready.done():
            ready.set_result(None)
    waiting.clear()


async def accept_wire(sock: socket.socket, context: ssl.SSLContext | None) -> Wire:
    """The guest's side. Owns `sock` from here on. Raises OSError, of which TLS's are some."""
    return await _make(sock, context, None)


async def connect_wire(sock: socket.socket, context: ssl.SSLContext | None, name: str) -> Wire:
    """The far side, on a socket that is connected. With a context, `name` is verified before this
    returns. Raises OSError, of which TLS's are some."""
    return await _make(sock, context, name)


async def _make(sock: socket.socket, context: ssl.SSLContext | None, name: str | None) -> Wire:
    try:
        with contextlib.suppress(OSError):  # a pair of unix sockets has no such thing
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return Wire(sock)
        sock = tls = context.wrap_socket(
            sock,
            server_side=name is None,
            server_hostname=name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
        wire = Wire(sock)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await wire.shake_hands(tls)
        return wire
    except BaseException:
        sock.close()
        raise
