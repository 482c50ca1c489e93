"""Work that takes steps (a build, a template, an agent's kit), told as events while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from agentkernel.kernel.building.model import BuildEvent, Report
from agentkernel.server import sse

_WAITING: Final = 256

Work = Callable[[Report], Awaitable[Any]]


async def step_events(
    work: Work, kinds: Mapping[Any, str], last: str, stack: ExitStack | None = None
) -> AsyncGenerator[bytes, None]:
    """Its steps by their kinds, then what it made as the event `last`. Whoever goes away ends it.
    `stack`: what it needs, closed with it."""
    with stack or ExitStack():
        waiting: asyncio.Queue[BuildEvent | None] = asyncio.Queue(_WAITING)

        async def to_its_end() -> Any:
            try:
                return await work(waiting.put)
            finally:
                # Without waiting: nobody may read any more.
                while waiting.full():
                    waiting.get_nowait()
                waiting.put_nowait(None)

        task = asyncio.ensure_future(to_its_end())
        try:
            while (event := await waiting.get()) is not None:
                yield sse.event(kinds[type(event)], event)
            yield sse.event(last, await task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))


async def nobody(event: BuildEvent) -> None:
    """Who asks for one answer is told of no step."""
