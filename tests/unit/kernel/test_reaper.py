"""The reaper's own end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agentkernel.kernel.reaper import Reaper


class NoWatch:
    async def stop(self) -> None:
        return


async def test_an_end_that_meets_a_wake_up_is_heard() -> None:
    reaper = Reaper(cast(Any, SimpleNamespace(live={})), cast(Any, NoWatch()))
    reaper.start()
    for _ in range(5):
        await asyncio.sleep(0)  # it waits by now
    reaper.wake()
    ending = asyncio.ensure_future(reaper.stop())
    done, _ = await asyncio.wait({ending}, timeout=5)
    ending.cancel()
    assert done, "it goes on"
