"""The editor: lines on stdin, lines on stdout. stdout is the protocol's alone.

Both are read and written by threads, as they may be pipes, sockets or files; what one of them holds
is bounded, so an editor that does not read stops the agent in the end, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

from agentkernel.agents.acp import wire

_CHUNK: Final = 1 << 16
_AHEAD: Final = 64
_LAST_SECONDS: Final = 5.0


class Stdio:
    """Used within one event loop; its threads end with the process."""

    def __init__(self, source: int = 0, target: int = 1) -> None:
        self._source = source
        self._target = target
        self._lines = wire.Lines()
        self._loop = asyncio.get_running_loop()
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._outgoing: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
        self._written = threading.Event()
        self._broken = False

    def start(self) -> None:
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True, name=f"stdio{work.__name__}").start()

    async def messages(self) -> AsyncIterator[wire.Message]:
        """What the editor says, to its end. What is no message gets the answer that it is none."""
        while (data := await self._incoming.get()) is not None:
            dropped = self._lines.dropped
            for line in self._lines.feed(data):
                message = wire.decode(line)
                if message is None:
                    await self._refuse("the line is no JSON-RPC message")
                else:
                    yield message
            if self._lines.dropped > dropped:
                await self._refuse(f"a line has {wire.MAX_LINE >> 20} MiB at most")

    async def send(self, message: wire.Message) -> None:
        """Returns when it is about to be written; what is too long is told instead."""
        await self._put(wire.encode(message))

    async def _refuse(self, why: str) -> None:
        # An answer to nobody knows what: its id is null.
        error = {"code": wire.PARSE_ERROR, "message": why}
        await self._put(wire.raw({"jsonrpc": "2.0", "id": None, "error": error}))

    async def _put(self, line: bytes | None) -> None:
        while not self._broken:
            try:
                self._outgoing.put_nowait(line)
                return
            except queue.Full:
                await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """All that was sent is written, or the editor does not take it."""
        await self._put(None)
        await asyncio.to_thread(self._written.wait, _LAST_SECONDS)

    # -- threads --------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._source, _CHUNK)
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(
                    self._incoming.put(data or None), self._loop
                ).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended
            if not data:
                return

    def _write(self) -> None:
        while (line := self._outgoing.get()) is not None:
            view = memoryview(line)
            try:
                while view:
                    view = view[os.write(self._target, view) :]
            except OSError:
                # The editor is gone. That it reads no more is known by the end of stdin.
                self._broken = True
                break
        self._written.set()


def log(text: str) -> None:
    """One line for people, on stderr."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:2000])
    sys.stderr.write(f"agentkernel acp: {shown}\n")
    sys.stderr.flush()
