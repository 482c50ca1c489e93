"""Threads that write to files which somebody else closes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agentkernel.images.oci.registry.blobs import in_thread


async def test_who_is_cancelled_waits_for_its_thread() -> None:
    began, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        began.set()
        ended.append(may_end.wait(30))

    task = asyncio.ensure_future(in_thread(work))
    await asyncio.to_thread(began.wait, 30)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_its_error_is_the_callers() -> None:
    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await in_thread(fail)
