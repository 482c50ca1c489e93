"""The user's terminal: raw while a command has it, restored whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator

from agentkernel.errors import SandboxUnavailableError
from agentkernel.guest.processes import GuestProcess

_CHUNK = 1 << 16
_TERMINAL_NAME = re.compile(r"[A-Za-z0-9.+-]{1,64}\Z")


class Terminal:
    """The terminal on stdin."""

    def __init__(self) -> None:
        name = os.environ.get("TERM", "")
        self.kind = name if _TERMINAL_NAME.match(name) else "xterm"

    @classmethod
    def here(cls, wanted: bool | None) -> Terminal | None:
        """The terminal to use: when asked for, or when stdin and stdout both are one."""
        if wanted is None:
            wanted = os.isatty(0) and os.isatty(1)
        return cls() if wanted else None

    def size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(0)
        except OSError:
            return 24, 80
        return max(1, rows), max(1, columns)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        if not os.isatty(0):
            yield
            return
        import termios
        import tty

        saved = termios.tcgetattr(0)
        try:
            tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)


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
