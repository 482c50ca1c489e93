"""Our stdin, stdout and stderr beside an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

from agentkernel.errors import SandboxUnavailableError
from agentkernel.guest.processes import GuestProcess

_CHUNK = 1 << 16


def feed_stdin(process: GuestProcess, loop: asyncio.AbstractEventLoop) -> None:
    """Copies our stdin to the process from a thread: stdin may be a file, which no loop can wait
    for. The thread ends with the program; the process ending first just leaves it waiting."""

    def copy() -> None:
        try:
            while data := os.read(0, _CHUNK):
                asyncio.run_coroutine_threadsafe(process.write(data), loop).result()
        except (OSError, SandboxUnavailableError, RuntimeError, asyncio.CancelledError):
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(process.close_stdin)

    if sys.stdin is not None:
        threading.Thread(target=copy, daemon=True, name="stdin").start()


async def write_out(fd: int, data: bytes) -> None:
    """Writes everything without blocking the loop: while a reader is slow, signals still work."""
    view = memoryview(data)
    while view:
        written = await asyncio.to_thread(os.write, fd, view)
        view = view[written:]
