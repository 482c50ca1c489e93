"""Jobs: commands with an id that go on without anybody listening.

agentd keeps a job's output and outcome; the row is its name and its last known state. A job is lost
only with its sandbox: then its row says so, and nothing is invented.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from agentkernel import faults
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Sandbox
from agentkernel.errors import ConflictError, NotFoundError, SandboxUnavailableError
from agentkernel.guest.channel import End
from agentkernel.guest.processes import (
    AttachedProcess,
    ExitStatus,
    GuestProcess,
    Outcome,
    ProcessOptions,
    count,
    exit_status,
)
from agentkernel.guest.protocol import Channel
from agentkernel.ids import new_id
from agentkernel.kernel.commands import judge, start_command, until_started
from agentkernel.kernel.live import Live
from agentkernel.kernel.shared_jobs import SharedJobs
from agentkernel.kernel.store import JobPage, JobRecord, NewEvent, SandboxRecord, Store

LIST_SECONDS = 10.0
Find = Callable[[str, str | None], Awaitable[tuple[SandboxRecord, Live]]]


class Jobs:
    """The jobs of all sandboxes of a kernel."""

    def __init__(self, store: Store, find: Find, trail: Trail) -> None:
        self._store = store
        self._find = find
        self.trail = trail
        self.shared = SharedJobs()

    @audited("job.start")
    async def start(
        self,
        sandbox: str,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        owner: str | None = None,
        id: str | None = None,
    ) -> JobRecord:
        """Returns when the job runs, or has ended already, or could not be started. `id`: the one
        it is to have."""
        record, live = await self._find(sandbox, owner)
        options = options or ProcessOptions()
        environment = {**record.env, **options.env}
        chosen = msgspec.structs.replace(options, job=True, env=environment)
        with live.used() as running, _starting(live, id or new_id()) as id:
            job = await self._store.insert_job(
                JobRecord(
                    id=id,
                    sandbox_id=record.id,
                    argv=list(argv),
                    options=msgspec.to_builtins(msgspec.structs.replace(chosen, env=options.env)),
                    created_at=time.time(),
                )
            )
            try:
                faults.point("job.row")
                process = start_command(running, argv, chosen, id=job.id)
                live.running_jobs.add(job.id)
                await until_started(process)
            except SandboxUnavailableError:
                # Whether it runs only agentd knows: `refresh` asks it, unless it is lost with it.
                raise
            except BaseException:
                await self._end(live, job.id, ExitStatus(outcome=Outcome.NOT_STARTED))
                raise
            faults.point("job.started")
            process.release()
        await self.refresh(live)
        return await self._store.get_job(job.id)

    async def list(self, sandbox: str, *, owner: str | None = None) -> list[JobRecord]:
        record, live = await self._find(sandbox, owner)
        await self.refresh(live)
        return await self._store.jobs_of(record.id)

    async def find(
        self,
        *,
        owner: str | None = None,
        sandbox: str | None = None,
        states: Sequence[str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> JobPage:
        """A page of the jobs of all sandboxes. Of those that run it is asked how they are."""
        id = None if sandbox is None else (await self._find(sandbox, owner))[0].id

        async def page() -> JobPage:
            return await self._store.find_jobs(
                owner, sandbox_id=id, states=states, after=after, limit=limit
            )

        found = await page()
        running = {job.sandbox_id for job in found.records if job.state == "running"}
        if not running:
            return found
        await asyncio.gather(*(self._refresh_of(id) for id in running))
        return await page()

    async def _refresh_of(self, sandbox: str) -> None:
        with contextlib.suppress(NotFoundError):  # removed meanwhile
            _, live = await self._find(sandbox, None)
            await self.refresh(live)

    async def get(self, id: str, *, owner: str | None = None) -> JobRecord:
        job = await self._store.get_job(id, owner)
        _, live = await self._find(job.sandbox_id, owner)
        await self.refresh(live)
        return await self._store.get_job(id)

    @audited("job.attach", "job")
    @contextlib.asynccontextmanager
    async def attach(
        self,
        id: str,
        *,
        owner: str | None = None,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        shared: bool = False,
        whole: bool = False,
    ) -> AsyncIterator[AttachedProcess]:
        """Its output from the given offsets, live to its end; stdin goes to it. Leaving the block
        leaves the job alone. Of a job with a terminal, and with `shared` of any, others may be
        attached at the same time (`shared_jobs`); else whoever was before is let go of. `whole`:
        the others wait if this one reads slowly, so that it misses nothing that agentd keeps."""
        job = await self._store.get_job(id, owner)
        _, live = await self._find(job.sandbox_id, owner)
        if job.state == "lost":
            raise ConflictError("the job was lost with its sandbox's processes")
        with live.used() as sandbox:
            process: AttachedProcess
            if shared or job.options.get("pty") or id in self.shared:
                offsets = {Channel.STDOUT: stdout_offset, Channel.STDERR: stderr_offset}
                process = await self.shared.join(sandbox, id, offsets, whole=whole)
            else:
                process = GuestProcess.attach(
                    sandbox.channel, id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
                )
            try:
                yield process
            finally:
                process.release()
                if process.status is not None:
                    await self._ended(live, sandbox, id, process.status)

    async def written(self, id: str, *, owner: str | None = None) -> dict[Channel, int] | None:
        """How much of stdout and stderr a running job has written; None if it has ended."""
        job = await self._store.get_job(id, owner)
        _, live = await self._find(job.sandbox_id, owner)
        with live.used() as sandbox:
            entry = (await _processes(sandbox)).get(id)
        if entry is None or not entry.get("running"):
            return None
        return {Channel.STDOUT: count(entry, "out"), Channel.STDERR: count(entry, "err")}

    @audited("job.signal", "job")
    async def signal(self, id: str, number: int, *, owner: str | None = None) -> None:
        await self._call(id, owner, "signal", signal=number)

    @audited("job.kill", "job")
    async def kill(self, id: str, *, owner: str | None = None) -> None:
        """The whole tree, whatever it did to hide."""
        await self._call(id, owner, "signal", kill=True)

    async def _call(self, id: str, owner: str | None, op: str, **arguments: Any) -> None:
        job = await self._store.get_job(id, owner)
        _, live = await self._find(job.sandbox_id, owner)
        with live.used() as sandbox:
            await sandbox.channel.call(op, id=id, **arguments)

    async def refresh_all(self, sandboxes: Iterable[Live]) -> None:
        for live in list(sandboxes):
            await self.refresh(live)

    async def refresh(self, live: Live) -> None:
        """Asks agentd about jobs whose rows say `running`."""
        sandbox = live.sandbox
        if sandbox is None or sandbox.channel.closed.done() or live.silent:
            return
        rows = await self._store.jobs_of(live.id, states=("running",))
        live.running_jobs = {row.id for row in rows}
        if not rows:
            return
        try:
            found = await _processes(sandbox)
        except SandboxUnavailableError:
            return
        for row in rows:
            entry = found.get(row.id)
            if row.id in live.starting_jobs:
                continue
            if entry is None:
                # A row without a process: killed between the two. Nothing of it ever ran, or
                # agentd would know it.
                await self._end(live, row.id, ExitStatus(outcome=Outcome.NOT_STARTED))
            elif not entry.get("running"):
                await self._ended(live, sandbox, row.id, exit_status(End(entry)))

    async def outcome(self, job: JobRecord) -> ExitStatus:
        """How a job ended, as judged when its end was seen first; `lost` if nobody knows."""
        with contextlib.suppress(NotFoundError):
            _, live = await self._find(job.sandbox_id, None)
            if judged := live.judged.get(job.id):
                return judged
            if status := (await self._store.get_job(job.id)).status:
                return msgspec.convert(status, ExitStatus)
        return ExitStatus(outcome=Outcome.LOST)

    async def _ended(self, live: Live, sandbox: Sandbox, id: str, status: ExitStatus) -> None:
        """Judged once: why the kernel killed is only told to whoever asks first."""
        if id in live.judged or id not in live.running_jobs:
            return
        live.judged[id] = judge(sandbox, status)
        try:
            await self._end(live, id, live.judged[id])
            self._store.post_events(live.meter.events(sandbox, status))
        finally:
            del live.judged[id]

    async def _end(self, live: Live, id: str, status: ExitStatus) -> None:
        faults.point("job.ended")
        live.running_jobs.discard(id)
        live.touch()
        ended = msgspec.to_builtins(status)
        shown = ("outcome", "exit_code", "signal", "usage")
        event = NewEvent(
            kind="job.ended",
            sandbox_id=live.id,
            body={"job": id, **{name: ended[name] for name in shown}},
        )
        with contextlib.suppress(NotFoundError, ConflictError):
            await self._store.update_job(
                id,
                expect_state="running",
                state="ended",
                status=ended,
                ended_at=time.time(),
                events=[event],
            )


@contextlib.contextmanager
def _starting(live: Live, id: str) -> Iterator[str]:
    """The id of a new job, which nobody takes for one that was never started meanwhile."""
    live.starting_jobs.add(id)
    try:
        yield id
    finally:
        live.starting_jobs.discard(id)


async def _processes(sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    """What agentd knows of, by id."""
    answer = await sandbox.channel.call("list", seconds=LIST_SECONDS)
    return {
        entry["id"]: entry
        for entry in answer.get("procs", ())
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }
