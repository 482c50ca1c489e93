"""An agentd that lies: a server on a sandbox's socket which sends whatever a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.backends.local.launcher import listen_in
from agentkernel.guest.protocol import FrameType, map_frame

MIB = 1 << 20


class Peer:
    """The liar's end of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes
    ) -> None:
        self.token = token
        self.frames: list[tuple[int, int, bytes]] = []
        self.sent = 0
        self._reader = reader
        self._writer = writer

    async def read_frame(self) -> tuple[int, int, bytes]:
        header = await self._reader.readexactly(9)
        length, stream = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:8], "little")
        frame = (stream, header[8], await self._reader.readexactly(length - 5))
        self.frames.append(frame)
        return frame

    async def read_all(self) -> None:
        """Everything the host says until it hangs up."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self.read_frame()

    async def send(self, data: bytes) -> None:
        """Raises ConnectionError once the host has hung up."""
        self._writer.write(data)
        await self._writer.drain()
        self.sent += len(data)

    async def host_nonce(self) -> bytes:
        _, kind, payload = await self.read_frame()
        assert kind == FrameType.HELLO
        nonce = msgspec.msgpack.decode(payload)["nonce"]
        assert isinstance(nonce, bytes)
        return nonce

    def hello(self, host_nonce: bytes, **changes: Any) -> dict[str, Any]:
        """What an honest agentd answers, with `changes`; a value of None leaves a key out."""
        nonce = os.urandom(16)
        body: dict[str, Any] = {
            "gen": 1,
            "nonce": nonce,
            "proof": hmac.digest(self.token, b"agentkernel agent" + host_nonce + nonce, "sha256"),
            "version": "0",
            "guard": {"dumpable": 0, "uid": 0, "caps": 0},
        }
        body |= changes
        return {key: value for key, value in body.items() if value is not None}

    async def greet(self, **changes: Any) -> None:
        await self.send(
            map_frame(0, FrameType.HELLO, self.hello(await self.host_nonce(), **changes))
        )

    async def greet_and_open(self) -> int:
        """An honest handshake, then the stream of the host's first request."""
        await self.greet()
        await self.read_frame()
        while True:
            stream, kind, _ = await self.read_frame()
            if kind == FrameType.OPEN:
                return stream


Script = Callable[[Peer], Awaitable[None]]


@contextlib.asynccontextmanager
async def fake_agent(directory: Path, script: Script) -> AsyncIterator[tuple[bytes, list[Peer]]]:
    """Runs `script` for each connection to `directory`/s; gives the token and the peers."""
    token = os.urandom(32)
    peers: list[Peer] = []
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, token)
        peers.append(peer)
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            await script(peer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_unix_server(serve, sock=listen_in(str(directory)))
    try:
        yield token, peers
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Cost:
    """What a block took: seconds, and the most Python memory beyond what was there before."""

    seconds = 0.0
    peak = 0


@contextlib.contextmanager
def measured() -> Iterator[Cost]:
    cost = Cost()
    tracemalloc.start()
    before, start = tracemalloc.get_traced_memory()[0], time.monotonic()
    try:
        yield cost
    finally:
        cost.seconds = time.monotonic() - start
        cost.peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
