"""The daemon's end of the line to the gateway: one connection, calls with answers, events.

A link is one connection of its life: when it is closed, for whatever reason, `closed` is done, all
calls that wait have failed, and whoever wants to go on makes another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.errors import HostError
from agentkernel.network.gateway.messages import (
    FRAME_BYTES,
    GENERATION,
    SOCKET_NAME,
    Call,
    Counted,
    Done,
    Events,
    Hello,
    Reply,
    Status,
    Stop,
    Welcome,
)
from agentkernel.network.policy.model import Operator

ANSWER_SECONDS = 20.0
_LENGTH = struct.Struct("<I")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reply).decode


class LinkClosed(HostError):
    """The gateway is not there (any more)."""

    def __init__(self, words: str = "the network gateway has ended") -> None:
        super().__init__(words, hint="it is started again by itself; see gateway.log")


class OtherBuild(LinkClosed):
    """A gateway of other code than ours was there, and has left."""


class GatewayLink:
    """See the module. `on_events` is called with what the gateway tells by itself."""

    def __init__(self, sock: socket.socket, on_events: Callable[[Events], None]) -> None:
        self._socket = sock
        self._on_events = on_events
        self._serials = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sending = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._reading = asyncio.create_task(self._read(), name="gateway link")

    @classmethod
    async def connect(cls, state_dir: Path, on_events: Callable[[Events], None]) -> GatewayLink:
        """To a gateway that runs. Raises LinkClosed where none does."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            directory = os.open(state_dir, os.O_PATH | os.O_CLOEXEC)
            try:
                # By a descriptor: an address of a socket holds 107 bytes.
                sock.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            finally:
                os.close(directory)
        except OSError as exc:
            sock.close()
            raise LinkClosed(f"no gateway answers: {exc.strerror}") from None
        return cls(sock, on_events)

    async def greet(self, operator: Operator) -> Welcome:
        """First of all. Raises OtherBuild, which then leaves."""
        hello = Hello(serial=next(self._serials), generation=GENERATION, operator=operator)
        welcome = await self._call(hello)
        if not isinstance(welcome, Welcome) or welcome.generation != GENERATION:
            # Only when it is gone are its sockets free for the next one.
            with contextlib.suppress(LinkClosed, TimeoutError):
                await self._call(Stop(serial=next(self._serials)))
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(self.closed)
            self.close()
            raise OtherBuild("the gateway was of another version, and has left")
        return welcome

    async def call(self, kind: type[Any], *descriptors: int, **fields: Any) -> None:
        """Raises LinkClosed, and HostError with the gateway's words where it could not."""
        answer = await self._call(kind(serial=next(self._serials), **fields), *descriptors)
        if isinstance(answer, Done) and answer.error is not None:
            raise HostError(f"the network gateway refused: {answer.error}")

    async def count(self, id: str) -> Counted | None:
        answer = await self._call(Status(serial=next(self._serials), id=id))
        return answer if isinstance(answer, Counted) else None

    def close(self) -> None:
        self._reading.cancel()
        self._end()

    async def _call(self, message: Call, *descriptors: int) -> Reply:
        if self.closed.done():
            raise LinkClosed
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[message.serial] = answer
        try:
            body = _encode(message)
            async with asyncio.timeout(ANSWER_SECONDS):
                async with self._sending:
                    await self._send(_LENGTH.pack(len(body)) + body, descriptors)
                return await answer
        except (TimeoutError, OSError):
            # Half a message may be on its way: nothing can follow it.
            self.close()
            raise LinkClosed("the network gateway does not answer") from None
        finally:
            self._waiting.pop(message.serial, None)

    async def _send(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Descriptors go with the first byte."""
        view = memoryview(data)
        while view:
            try:
                sent = socket.send_fds(self._socket, [view], list(descriptors))
            except BlockingIOError:
                await self._writable()
                continue
            view, descriptors = view[sent:], ()

    async def _writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._socket, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(self._socket)

    async def _read(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
                if length > FRAME_BYTES:
                    return
                reply = _decode(await self._exactly(length))
                if isinstance(reply, Events):
                    self._on_events(reply)
                elif (waiting := self._waiting.get(reply.serial)) and not waiting.done():
                    waiting.set_result(reply)
        except (OSError, EOFError, msgspec.MsgspecError):
            return
        finally:
            self._end()

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._loop.sock_recv(self._socket, min(1 << 18, size - len(data)))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _end(self) -> None:
        if self.closed.done():
            return
        self.closed.set_result(None)
        self._socket.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkClosed())


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
