"""Telling a client every second that something still goes on, so that it does not lose patience."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

SECONDS = 1.0
_LINE = 200

# Seconds since it began, and a line that says where it is.
Report = Callable[[float, str], Awaitable[None]]


class Progress:
    """`last`: what was written last, whose last line is told."""

    def __init__(self) -> None:
        self.last = b""


@asynccontextmanager
async def telling(report: Report) -> AsyncIterator[Progress]:
    """For the time of its block."""
    progress = Progress()
    task = asyncio.create_task(_tell(report, progress))
    try:
        yield progress
    finally:
        task.cancel()


async def _tell(report: Report, progress: Progress) -> None:
    begin = time.monotonic()
    while True:
        await asyncio.sleep(SECONDS)
        seconds = time.monotonic() - begin
        line = last_line(progress.last)
        try:
            await report(seconds, f"{seconds:.0f} s: {line}" if line else f"{seconds:.0f} s")
        except Exception:
            return  # nobody is there to be told, which others find out as well


def last_line(data: bytes) -> str:
    """Of the end of some output, fit for one line of a screen."""
    text = data[-2 * _LINE :].decode("utf-8", "ignore").rstrip()
    line = text.replace("\r", "\n").rpartition("\n")[2][-_LINE:]
    return "".join(c if c.isprintable() else " " for c in line).strip()
