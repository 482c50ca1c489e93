"""Ends what has outlived its time: time to live, and idleness. Two clocks, never one for the other.

An event is written before anything is ended. The idle clock is this process's own and begins anew
with it; the time to live is a row and goes on while nobody watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import acting
from agentkernel.errors import AgentKernelError, NotFoundError

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel
    from agentkernel.kernel.store import SandboxRecord
    from agentkernel.kernel.watch import Watch

# The longest sleep: how late an idle sandbox, whose clock no row shows, may be noticed.
MAX_SLEEP_S = 1.0


class Reaper:
    def __init__(self, kernel: Kernel, watch: Watch) -> None:
        self._kernel = kernel
        self._watch_answers = watch
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        with acting(Actor(door="clock")):
            self._task = asyncio.create_task(self._watch(), name="reaper")

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._watch_answers.stop()

    def wake(self) -> None:
        self._wakeup.set()

    async def _watch(self) -> None:
        while True:
            self._wakeup.clear()
            sleep = MAX_SLEEP_S
            with contextlib.suppress(AgentKernelError):  # a full disk now, better luck next time
                sleep = await self._look()
            # Not wait_for, which in Python 3.11 loses a cancellation that meets a wake-up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep):
                    await self._wakeup.wait()

    async def _look(self) -> float:
        """Ends what is due; returns how long nothing else will be."""
        watched = [live for live in self._kernel.live.values() if live.sandbox]
        for live in watched:
            self._watch_answers.look(live)
        sleep = MAX_SLEEP_S
        for live in watched:
            with contextlib.suppress(NotFoundError):
                if live.idle_seconds() == 0.0:
                    self._kernel.look_at_limits(live)
                record = await self._kernel.get(live.id)
                now = time.time()
                if record.expires_at is not None and record.expires_at <= now:
                    await self._end(record, "ttl", record.on_ttl)
                elif record.expires_at is not None:
                    sleep = min(sleep, record.expires_at - now)
                if record.idle_seconds is not None:
                    left = record.idle_seconds - live.idle_seconds()
                    if left <= 0:
                        await self._end(record, "idle", record.on_idle)
                    else:
                        sleep = min(sleep, left)
        return max(sleep, 0.01)

    async def _end(self, record: SandboxRecord, clock: str, action: str) -> None:
        usage = msgspec.to_builtins((await self._kernel.known(record.id)).usage)
        await self._kernel.tell(record, "sandbox.expiring", clock=clock, action=action, usage=usage)
        if action == "remove":
            await self._kernel.remove(record.id, reason=clock)
        else:
            await self._kernel.stop(record.id, reason=clock)
