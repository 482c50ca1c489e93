"""The gateway's end of the line to the daemon. Daemons may come and go; the newest one counts."""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable

import msgspec

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.messages import (
    FRAME_BYTES,
    GENERATION,
    SOCKET_NAME,
    Call,
    Done,
    Hello,
    Register,
    Reply,
    Stop,
    Welcome,
)
from agentkernel.network.gateway.server import DESCRIPTORS, Gateway

_LENGTH = struct.Struct("<I")
_CHUNK = 256 << 10
_MOST_DESCRIPTORS = 16 * DESCRIPTORS
_EVENTS_PAUSE = 0.05

_log = logging.getLogger("agentkernel.gateway")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Call).decode


class _AnyHello(msgspec.Struct, tag="hello"):
    """What a greeting of any build has."""

    serial: int
    generation: int


_decode_hello = msgspec.msgpack.Decoder(_AnyHello).decode


class LineError(Exception):
    """The other end does not keep to the protocol."""


class Line:
    """One connection of a daemon: frames in with their descriptors, frames out one by one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._data = bytearray()
        self._descriptors: list[int] = []
        self._sending = asyncio.Lock()

    async def read(self) -> bytes | None:
        """The next message; None at the end. Raises LineError, OSError."""
        while True:
            if len(self._data) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._data)
                if not 1 <= length <= FRAME_BYTES:
                    raise LineError("a message of a wrong length")
                if len(self._data) >= _LENGTH.size + length:
                    body = bytes(self._data[_LENGTH.size : _LENGTH.size + length])
                    del self._data[: _LENGTH.size + length]
                    return body
            if not await self._fill():
                return None

    async def _fill(self) -> bool:
        await sockets.wait_readable(self._socket, None)
        ancillary = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
        try:
            data, messages, flags, _ = self._socket.recvmsg(
                _CHUNK, ancillary, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return True
        for level, kind, content in messages:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > _MOST_DESCRIPTORS:
            raise LineError("too many descriptors")
        self._data += data
        return bool(data)

    def take_descriptors(self) -> list[int]:
        """Those of the oldest message that has some."""
        taken = self._descriptors[:DESCRIPTORS]
        del self._descriptors[:DESCRIPTORS]
        return taken

    async def send(self, message: Reply) -> None:
        """Raises OSError."""
        body = _encode(message)
        async with self._sending:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(self._socket, _LENGTH.pack(len(body)) + body)

    def close(self) -> None:
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors.clear()
        self._socket.close()


class Control:
    """Listens for daemons. `on_change` is called when one has come or gone."""

    def __init__(self, gateway: Gateway, directory: str, on_change: Callable[[], None]) -> None:
        self._gateway = gateway
        self._directory = directory
        self._listener = listener = listen_in(directory)
        self._on_change = on_change
        self._current: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    @property
    def connected(self) -> bool:
        return self._current is not None

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if _peer_uid(sock) != os.getuid():
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._serve(sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        line = Line(sock)
        me = asyncio.current_task()
        events: asyncio.Task[None] | None = None
        try:
            if not await self._greet(line):
                return
            self._take_over(me)
            events = self._loop.create_task(self._send_events(line))
            while (body := await line.read()) is not None:
                call = _decode(body)
                descriptors = line.take_descriptors() if isinstance(call, Register) else []
                if isinstance(call, Stop):
                    self.stop_listening()
                await line.send(await self._gateway.handle(call, descriptors))
        except (LineError, msgspec.MsgspecError) as exc:
            _log.error("the daemon broke the protocol: %s", exc)
        except OSError:
            pass  # it is gone
        finally:
            if events:
                events.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await events
            line.close()
            if self._current is me:
                self._current = None
            self._on_change()

    async def _greet(self, line: Line) -> bool:
        """True if both ends are of one build. One of another build may only tell us to stop."""
        body = await line.read()
        if body is None:
            return False
        hello = _decode_hello(body)
        if hello.generation != GENERATION:
            await line.send(self._gateway.welcome(hello.serial))
            if (body := await line.read()) is not None:
                call = _decode(body)
                if isinstance(call, Stop):
                    self.stop_listening()
                    await line.send(await self._gateway.handle(call, []))
                else:
                    await line.send(Done(serial=call.serial, error="of another version"))
            return False
        greeting = _decode(body)
        if not isinstance(greeting, Hello):
            raise LineError("no greeting")
        welcome = await self._gateway.handle(greeting, [])
        await line.send(welcome)
        return isinstance(welcome, Welcome)

    def _take_over(self, me: asyncio.Task[None] | None) -> None:
        if self._current:
            self._current.cancel()
        self._current = me
        self._on_change()

    async def _send_events(self, line: Line) -> None:
        outbox = self._gateway.world.outbox
        while True:
            await outbox.filled.wait()
            batch = outbox.pull()
            if batch is None:
                continue
            sent = False
            try:
                await line.send(batch)
                sent = True
            except OSError:
                return
            finally:
                if not sent:
                    outbox.put_back(batch)
            await asyncio.sleep(_EVENTS_PAUSE)

    def stop_listening(self) -> None:
        """Before anybody is told that we leave: who then connects is meant for the next one. Only
        while the lock is held, or it would be the next one's socket that goes."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET_NAME))

    async def close(self) -> None:
        self.stop_listening()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _peer_uid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("iII", credentials)
    return int(uid)


def listen_in(directory: str) -> socket.socket:
    """A listening socket at `directory`/gateway.sock, instead of one that a dead gateway left.
    Bound through a descriptor, because an address of a socket holds 107 bytes only."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=fd)
        sock.bind(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
        os.chmod(SOCKET_NAME, 0o600, dir_fd=fd)
        sock.listen(16)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(fd)
    return sock
