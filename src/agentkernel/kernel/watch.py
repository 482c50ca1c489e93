"""Whether sandboxes still answer, and what their rows say when they do not.

Two things look alike from outside and are not: a sandbox whose PID 1 is gone has lost its jobs, and
nothing but files is left of it; one whose agentd is silent, stopped or starved, has everything and
may come back. Both rows say `error` with the reason. The first stays so until it is stopped,
started or removed; the second until it answers.

Asked are those whose row says that they run, rarely: an idle sandbox costs one message in
PING_EVERY_S. A silent one is asked again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    GuestTimeoutError,
    NotFoundError,
    SandboxUnavailableError,
)
from agentkernel.kernel.store import Store, event_of

if TYPE_CHECKING:
    from agentkernel.backends.base import Sandbox
    from agentkernel.kernel.jobs import Jobs
    from agentkernel.kernel.live import Live

PING_EVERY_S = 30.0
ANSWER_S = 10.0
# PID 1 lets go of its channel a moment before it is gone: all others inside end first.
ENDING_S = 2.0
ENDED = "its first process has ended"


class Watch:
    """For the reaper, which calls `look` at least once a second. Nothing here delays it."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self._looks: dict[str, asyncio.Task[None]] = {}

    def look(self, live: Live) -> None:
        if live.id not in self._looks and live.sandbox and not live.ended:
            task = asyncio.create_task(self._look(live, live.sandbox), name=f"watch {live.id}")
            self._looks[live.id] = task
            task.add_done_callback(lambda _: self._looks.pop(live.id, None))

    async def stop(self) -> None:
        tasks = list(self._looks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, live: Live, sandbox: Sandbox) -> None:
        # A row that can't be written now is written at the next look; one that is gone is not.
        with contextlib.suppress(AgentKernelError):
            if sandbox.channel.closed.done():
                await self._lost(live, sandbox)
                return
            if live.silent or time.monotonic() - live.answered_at >= PING_EVERY_S:
                await self._ping(live, sandbox)
            await self._jobs.refresh(live)

    async def _ping(self, live: Live, sandbox: Sandbox) -> None:
        try:
            await sandbox.channel.call("ping", seconds=ANSWER_S)
        except GuestTimeoutError:
            if not live.silent:
                await self._error(live, sandbox, f"agentd has not answered for {ANSWER_S:g} s")
                live.silent = True
            return
        except SandboxUnavailableError:
            return  # the next look finds the channel closed
        live.answered_at = time.monotonic()
        if live.silent:
            async with live.changing:
                record = await self._store.get_sandbox(live.id)
                if live.sandbox is sandbox and record.state == "error":
                    event = event_of(record, "sandbox.available")
                    await self._store.update_sandbox(
                        live.id, state="running", error=None, events=[event]
                    )
            live.silent = False

    async def _lost(self, live: Live, sandbox: Sandbox) -> None:
        """Its channel is closed: by its end, or because agentd broke the protocol."""
        if not await _ends(sandbox):
            await self._error(live, sandbox, sandbox.channel.closed.result().message)
            return
        async with live.changing:
            if live.sandbox is sandbox:
                await sandbox.stop()  # groups, ids, marks: it is gone already
                await self._store.mark_jobs_lost(live.id)
                live.running_jobs.clear()
        await self._error(live, sandbox, ENDED)
        live.ended = live.sandbox is sandbox

    async def _error(self, live: Live, sandbox: Sandbox, reason: str) -> None:
        async with live.changing:
            if live.sandbox is not sandbox:
                return
            with contextlib.suppress(NotFoundError, ConflictError):
                record = await self._store.get_sandbox(live.id)
                if (record.state, record.error) == ("error", reason):
                    return
                event = event_of(record, "sandbox.unavailable", reason=reason)
                await self._store.update_sandbox(
                    live.id,
                    expect_state=("running", "error"),
                    state="error",
                    error=reason,
                    events=[event],
                )


async def _ends(sandbox: Sandbox) -> bool:
    deadline = time.monotonic() + ENDING_S
    while sandbox.lives():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
