"""A template's start command in a sandbox, and the wait until it is ready.

All that is waited for is the guest's doing: it may never come, so there is a deadline, and of what
it writes no more is kept than an error can show.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentkernel.errors import AgentKernelError, NotReadyError
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.guest.tcp import open_tcp
from agentkernel.kernel.store import JobRecord, SandboxRecord
from agentkernel.kernel.template_model import Kept, ReadyCheck

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_TRY_SECONDS = 10.0
_LAST_BYTES = 4096
_LAST_LINES = 20


async def start_and_wait(kernel: Kernel, record: SandboxRecord, kept: Kept) -> None:
    """Raises NotReadyError, with the end of what the start command wrote."""
    job = None
    if kept.start is not None:
        job = await kernel.jobs.start(record.id, ["sh", "-c", kept.start])
    waiting = _Waiting(kernel, record.id, job)
    if kept.ready is None:
        return
    try:
        async with asyncio.timeout(kept.ready.seconds):
            await waiting.until(kept.ready)
    except TimeoutError:
        raise await waiting.failure(f"it was not ready within {kept.ready.seconds:g} s") from None


class _Waiting:
    def __init__(self, kernel: Kernel, sandbox: str, job: JobRecord | None) -> None:
        self._kernel = kernel
        self._sandbox = sandbox
        self._job = job

    async def until(self, ready: ReadyCheck) -> None:
        if ready.log is not None:
            await self._written(ready.log)
            return
        pause = _FIRST_PAUSE
        while not await self._passes(ready):
            await self._check_runs()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _passes(self, ready: ReadyCheck) -> bool:
        if ready.port is not None:
            _, live = await self._kernel._find(self._sandbox, None)
            try:
                with live.used() as sandbox:
                    connection = await open_tcp(sandbox.channel, ready.port, seconds=_TRY_SECONDS)
            except AgentKernelError:
                if live.sandbox is None or live.sandbox.channel.closed.done():
                    raise
                return False
            connection.release()
            return True
        result = await self._kernel.run(
            self._sandbox,
            ["sh", "-c", ready.command or "true"],
            ProcessOptions(timeout_seconds=_TRY_SECONDS),
            output_bytes=_LAST_BYTES,
        )
        return result.status.outcome is Outcome.EXITED and result.status.exit_code == 0

    async def _written(self, log: str) -> None:
        """Looked for in each stream by itself, also where it is cut in two."""
        assert self._job is not None
        wanted = log.encode()
        ends: dict[object, bytes] = {}
        async with self._kernel.jobs.attach(self._job.id) as process:
            while (part := await process.output()) is not None:
                seen = ends.get(part.channel, b"") + part.data
                if wanted in seen:
                    return
                ends[part.channel] = seen[-len(wanted) :]
        raise await self.failure(f"the start command ended without writing {log[:100]!r}")

    async def _check_runs(self) -> None:
        """One that has ended well may have left a server behind; any other will never be ready."""
        if self._job is None:
            return
        job = await self._kernel.jobs.get(self._job.id)
        status = job.status or {}
        if job.state != "running" and status.get("exit_code") != 0:
            how = f"status {status.get('exit_code')}"
            if status.get("outcome") != Outcome.EXITED:
                how = str(status.get("outcome", job.state))
            raise await self.failure(f"the start command ended: {how}")

    async def failure(self, reason: str) -> NotReadyError:
        output = [] if self._job is None else await self._output(self._job.id)
        shown = f"; it wrote at last: {output[-1][:200]}" if output else ""
        return NotReadyError(
            f"the sandbox did not get ready: {reason}{shown}",
            hint="see `start` and `ready` of the template: agentkernel template show NAME",
            job=None if self._job is None else self._job.id,
            output=output,
        )

    async def _output(self, job: str) -> list[str]:
        """What is written so far, its end."""
        kept = b""
        try:
            async with asyncio.timeout(_TRY_SECONDS):
                written = await self._kernel.jobs.written(job)
                left = None if written is None else sum(written.values())
                async with self._kernel.jobs.attach(job) as process:
                    while left is None or left > 0:
                        part = await process.output()
                        if part is None:
                            break
                        kept = (kept + part.data)[-_LAST_BYTES:]
                        left = None if left is None else left - len(part.data)
        except (AgentKernelError, TimeoutError):
            pass
        return kept.decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
