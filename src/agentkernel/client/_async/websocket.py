"""A WebSocket to the daemon. Not reading is the back-pressure: nothing is read ahead."""

from __future__ import annotations

import time

from agentkernel.client import frames
from agentkernel.client.asyncio_stream import AsyncLock, AsyncStream


class AsyncWebSocket:
    """Messages both ways. One reader at a time; writers wait for one another."""

    def __init__(self, stream: AsyncStream, decoder: frames.Decoder) -> None:
        self.stream = stream
        self.decoder = decoder
        self._writing = AsyncLock()

    async def send(self, opcode: int, payload: bytes, *, seconds: float | None = None) -> None:
        """Waits while the other end does not read, at most `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        async with self._writing:
            await self.stream.write(frames.encode(opcode, payload), deadline)

    async def receive(self, *, seconds: float | None = None) -> bytes | None:
        """The next message; None when the other end has closed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            message = self.decoder.next()
            if message is None:
                data = await self.stream.read(deadline)
                if not data:
                    return None
                self.decoder.feed(data)
                continue
            opcode, payload = message
            if opcode == frames.PING:
                await self.send(frames.PONG, payload)
            elif opcode == frames.CLOSE:
                return None
            elif opcode != frames.PONG:
                return payload

    async def close(self) -> None:
        """Says goodbye if that is possible at once."""
        try:
            await self.send(frames.CLOSE, b"\x03\xe8", seconds=0.2)
        except OSError:
            pass
        finally:
            self.stream.close()
