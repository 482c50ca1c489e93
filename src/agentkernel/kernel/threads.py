"""Work that blocks, in threads. Whoever is cancelled meanwhile waits for it, since a thread can't
be stopped, and what it works on must not be let go of before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """What `work` returns."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


@contextlib.asynccontextmanager
async def block_in_threads(block: contextlib.AbstractContextManager[Any]) -> AsyncIterator[Any]:
    """A block whose beginning and end block, such as one that waits for a lock."""
    entering = asyncio.ensure_future(asyncio.to_thread(block.__enter__))
    try:
        value = await asyncio.shield(entering)
    except asyncio.CancelledError:
        # The thread can't be stopped: what it still gets is given back.
        entering.add_done_callback(
            lambda done: None if done.exception() else block.__exit__(None, None, None)
        )
        raise
    try:
        yield value
    finally:
        await asyncio.shield(asyncio.to_thread(block.__exit__, None, None, None))
