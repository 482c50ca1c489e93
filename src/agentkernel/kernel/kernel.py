"""The kernel as a library: sandboxes with names, a state that survives, commands, jobs, events.

    async with Kernel() as kernel:
        sandbox = await kernel.create(SandboxSpec(), name="work")
        result = await kernel.run("work", ["python3", "-c", "print(6*7)"])

One Kernel owns a state directory (StateLockedError otherwise). Sandboxes outlive it: closing it, or
killing its process, leaves them and their jobs running, and the next Kernel finds them again.

Every change is a row before it is a fact: `creating` and `removing` are what a crash leaves, and
what the next start completes or takes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from agentkernel.audit.log import Retention
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Blueprint, Progress
from agentkernel.backends.registry import Backends
from agentkernel.errors import AgentKernelError, ConflictError, InvalidInputError, NotFoundError
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ExitStatus, GuestProcess, Outcome, ProcessOptions
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.auditing import AuditedFiles, open_trail
from agentkernel.kernel.commands import ExecResult, judge, run_command, start_command
from agentkernel.kernel.insight import Known, end_counted
from agentkernel.kernel.jobs import Jobs
from agentkernel.kernel.live import Live
from agentkernel.kernel.probe.findings import ProbeResult
from agentkernel.kernel.reaper import Reaper
from agentkernel.kernel.reconcile import reconcile
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.state import state_directory
from agentkernel.kernel.store import (
    EventPage,
    Idempotency,
    SandboxPage,
    SandboxRecord,
    StateLock,
    Statistics,
    Store,
    event_of,
)

LOCAL_OWNER = "local"
OUTPUT_BYTES = 16 << 20
AtEnd = Literal["stop", "remove"]


class Kernel:
    """See the module. `id` in its calls is an id or a name."""

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        admission: Admission | None = None,
        audit: Retention | None = None,
    ) -> None:
        self.state_dir = state_dir or state_directory()
        self.backends = Backends(self.state_dir)
        self._admission = admission or Admission()
        self._lock = StateLock(self.state_dir)
        self._audit = audit
        self.trail: Trail
        self._live: dict[str, Live] = {}
        self._store: Store
        self.jobs: Jobs
        self._reaper: Reaper

    async def __aenter__(self) -> Kernel:
        self._lock.acquire()
        try:
            self.trail = open_trail(self.state_dir, self._audit)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._store = await Store.open(self.state_dir / "state.db")
        except BaseException:
            self.trail.close()
            self._lock.release()
            raise
        self.jobs = Jobs(self._store, self._find, self.trail)
        self._reaper = Reaper(self)
        try:
            await self.backends.collect_garbage()
            self._live = await reconcile(self._store, self.backends, self.trail)
            await self.jobs.refresh_all(self._live.values())
        except BaseException:
            await self._close()
            raise
        self._reaper.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._reaper.stop()
        await self._close()

    async def _close(self) -> None:
        """Lets go of everything; what runs goes on."""
        for live in self._live.values():
            if live.sandbox:
                live.sandbox.channel.close()
        self._live.clear()
        await self._store.close()
        self.trail.close()
        self._lock.release()

    # -- life -----------------------------------------------------------------------------------

    @audited("sandbox.create")
    async def create(
        self,
        spec: SandboxSpec,
        *,
        name: str | None = None,
        owner: str = LOCAL_OWNER,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: float | None = None,
        idle_seconds: float | None = None,
        on_ttl: AtEnd | None = None,
        on_idle: AtEnd | None = None,
        idempotency: Idempotency | None = None,
        progress: Progress | None = None,
        owned: bool = False,
        id: str | None = None,
    ) -> SandboxRecord:
        """Makes and starts a sandbox. When it raises, nothing of it is left.

        `id`: the one it is to have. A record with another one was there before, by `idempotency`.
        `owned`: it ends with this process, however that ends, and is removed by the next Kernel.
        """
        for what, seconds in (("ttl", ttl_seconds), ("idle timeout", idle_seconds)):
            if seconds is not None and not seconds > 0:
                raise InvalidInputError(f"the {what} must be more than 0 s")
        backend = self.backends[spec.backend]
        if spec.ephemeral and "stop" in (on_ttl, on_idle):
            raise InvalidInputError(
                "a sandbox whose files are in memory can't be stopped, only removed",
                hint="leave on_ttl and on_idle out, or make one that is kept",
            )
        if owned and not spec.ephemeral:
            raise InvalidInputError("what ends with this process can't be kept")
        at_end: AtEnd = "remove" if spec.ephemeral else "stop"
        blueprint = expand(spec, owned=owned)
        if id is not None:
            blueprint = msgspec.structs.replace(blueprint, id=id)
        self._admission.check(len(self._live))
        self.trail.found(blueprint.id, name)
        now = time.time()
        record = SandboxRecord(
            id=blueprint.id,
            name=name,
            owner=owner,
            backend=backend.name,
            blueprint=msgspec.to_builtins(blueprint),
            env=spec.env,
            labels=dict(labels or {}),
            config=None if spec.config is None else msgspec.to_builtins(spec.config),
            ephemeral=spec.ephemeral,
            created_at=now,
            updated_at=now,
            ttl_seconds=ttl_seconds,
            idle_seconds=idle_seconds,
            on_ttl=on_ttl or at_end,
            on_idle=on_idle or at_end,
        )
        while True:
            inserted = await self._store.insert_sandbox(record, idempotency=idempotency)
            if inserted.created:
                return await self._make(inserted.record, blueprint, progress)
            if settled := await self._settled(inserted.record):
                return settled

    async def _make(
        self, record: SandboxRecord, blueprint: Blueprint, progress: Progress | None
    ) -> SandboxRecord:
        """From a row to a running sandbox, or neither."""
        live = self._live[blueprint.id] = Live(blueprint.id)
        async with live.changing:
            try:
                live.sandbox = await self.backends[record.backend].create(blueprint, progress)
                return await self._running(record, "sandbox.created")
            except BaseException as exc:
                live.failure = exc
                sandbox, live.sandbox = live.sandbox, None
                try:
                    if sandbox:
                        await sandbox.destroy()
                    await self._store.remove_sandbox(
                        blueprint.id,
                        events=[event_of(record, "sandbox.create_failed", reason=_words(exc))],
                    )
                finally:
                    # Last, so that whoever finds the row finds out why it goes.
                    self._live.pop(blueprint.id, None)
                raise

    async def _settled(self, record: SandboxRecord) -> SandboxRecord | None:
        """The record once whoever is changing the sandbox has done so; None: it is gone.

        Raises what went wrong with its making, which then is the answer to every repetition.
        """
        if live := self._live.get(record.id):
            async with live.changing:
                pass
            if isinstance(live.failure, AgentKernelError):
                raise live.failure
        with contextlib.suppress(NotFoundError):
            return await self._store.get_sandbox(record.id)
        return None

    @audited("sandbox.start")
    async def start(self, id: str, *, owner: str | None = None) -> SandboxRecord:
        """Runs a stopped sandbox again. One that runs is left as it is."""
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            if live.sandbox and not live.sandbox.channel.closed.done():
                return record
            if record.ephemeral:
                raise ConflictError(
                    "the files of this sandbox were in memory and are gone", hint="make another"
                )
            live.sandbox = await self.backends[record.backend].start(_blueprint(record))
            return await self._running(record, "sandbox.started")

    @audited("sandbox.stop")
    async def stop(
        self,
        id: str,
        *,
        owner: str | None = None,
        grace_seconds: float = 5.0,
        reason: str = "asked",
    ) -> SandboxRecord:
        """Ends every process and keeps the files. An ephemeral sandbox has none: it is removed."""
        record, live = await self._find(id, owner)
        if record.ephemeral:
            await self.remove(record.id, reason=reason)
            return msgspec.structs.replace(record, state="stopped")
        async with live.changing:
            sandbox, live.sandbox = live.sandbox, None
            usage = await end_counted(sandbox, lambda it: it.stop(grace_seconds))
            lost = await self._store.mark_jobs_lost(record.id)
            live.running_jobs.clear()
            body = {"reason": reason, "lost_jobs": len(lost), "usage": msgspec.to_builtins(usage)}
            known = msgspec.structs.replace(Known.of(record), usage=usage)
            return await self._store.update_sandbox(
                record.id,
                state="stopped",
                handle=known.handle(),
                expires_at=None,
                error=None,
                events=[event_of(record, "sandbox.stopped", **body)],
            )

    @audited("sandbox.remove")
    async def remove(self, id: str, *, owner: str | None = None, reason: str = "asked") -> None:
        """Ends it and removes every trace but its events."""
        record, live = await self._find(id, owner)
        backend = self.backends[record.backend]
        async with live.changing:
            await self._store.update_sandbox(record.id, state="removing")
            sandbox, live.sandbox = live.sandbox, None
            usage = await end_counted(sandbox, lambda it: it.destroy()) or Known.of(record).usage
            if not sandbox:
                await backend.remove(record.id)
            body = {"reason": reason, "usage": msgspec.to_builtins(usage)}
            await self._store.remove_sandbox(
                record.id, events=[event_of(record, "sandbox.removed", **body)]
            )
            self._live.pop(record.id, None)

    @audited("sandbox.extend")
    async def extend(
        self, id: str, ttl_seconds: float, *, owner: str | None = None
    ) -> SandboxRecord:
        """The time to live begins anew, from now."""
        if not ttl_seconds > 0:
            raise InvalidInputError("the ttl must be more than 0 s")
        record, _ = await self._find(id, owner)
        record = await self._store.update_sandbox(
            record.id, ttl_seconds=ttl_seconds, expires_at=time.time() + ttl_seconds
        )
        self._reaper.wake()
        return record

    async def _running(self, record: SandboxRecord, kind: str) -> SandboxRecord:
        now = time.time()
        live = self._live[record.id]
        live.touch()
        known = Known(effective=live.sandbox.effective if live.sandbox else ())
        record = await self._store.update_sandbox(
            record.id,
            state="running",
            handle=known.handle(),
            started_at=now,
            error=None,
            expires_at=None if record.ttl_seconds is None else now + record.ttl_seconds,
            events=[event_of(record, kind)],
        )
        self._reaper.wake()
        return record

    # -- looking --------------------------------------------------------------------------------

    async def get(self, id: str, *, owner: str | None = None) -> SandboxRecord:
        return await self._store.get_sandbox(id, owner)

    async def list(
        self,
        *,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> SandboxPage:
        return await self._store.find_sandboxes(
            owner, labels=labels, states=states, after=after, limit=limit
        )

    async def known(self, id: str, *, owner: str | None = None) -> Known:
        """What holds in it, what enforces that, and what it has used: now, or in its last run."""
        record, live = await self._find(id, owner)
        if live.sandbox is None:
            return Known.of(record)
        return Known(effective=live.sandbox.effective, usage=await live.sandbox.usage())

    @audited("sandbox.probe")
    async def probe(self, id: str, *, owner: str | None = None) -> ProbeResult:
        """What a guest can reach, tried from inside a running sandbox, which stays as it is."""
        from agentkernel.kernel.probe.running import probe_sandbox

        _, live = await self._find(id, owner)
        with live.used() as sandbox:
            return await probe_sandbox(sandbox)

    async def events(self, after: int = 0, **filters: Any) -> EventPage:
        return await self._store.events(after, **filters)

    async def wait_for_events(self, after: int) -> int:
        return await self._store.wait_for_events(after)

    async def statistics(self) -> Statistics:
        return await self._store.statistics()

    # -- commands -------------------------------------------------------------------------------

    @audited("exec")
    @contextlib.asynccontextmanager
    async def exec(
        self,
        id: str,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        owner: str | None = None,
    ) -> AsyncIterator[GuestProcess]:
        """A command for as long as the block lasts; leaving it early ends the command."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            process = start_command(sandbox, argv, _with_defaults(options, record))
            try:
                yield process
            finally:
                process.release()

    @audited("exec")
    async def run(
        self,
        id: str,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        owner: str | None = None,
        stdin: bytes = b"",
        output_bytes: int | None = None,
    ) -> ExecResult:
        """A command to its end, with what it wrote; of each stream as much as the sandbox keeps."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            result = await run_command(
                sandbox,
                argv,
                _with_defaults(options, record),
                stdin=stdin,
                output_bytes=output_bytes,
            )
            self.look_at_limits(live, result.status)
            return result

    async def judge(
        self, id: str, status: ExitStatus | None, *, owner: str | None = None
    ) -> ExitStatus:
        """How a command of `exec` ended, with what only the host knows. None: it was lost."""
        with contextlib.suppress(NotFoundError):
            _, live = await self._find(id, owner)
            if live.sandbox:
                self.look_at_limits(live, status)
                return judge(live.sandbox, status)
        return status or ExitStatus(outcome=Outcome.LOST)

    @contextlib.asynccontextmanager
    async def files(
        self, id: str, *, owner: str | None = None, user: str | None = None
    ) -> AsyncIterator[GuestFiles]:
        """The files of a running sandbox, which is in use for as long as the block lasts."""
        record, live = await self._find(id, owner)
        with live.used() as sandbox:
            if user is not None:
                sandbox.check_user(user)
            yield AuditedFiles(sandbox.channel, self.trail, record, user=user)

    # -- inside ---------------------------------------------------------------------------------

    async def _find(self, id: str, owner: str | None) -> tuple[SandboxRecord, Live]:
        record = await self._store.get_sandbox(id, owner)
        self.trail.found(record.id, record.name)
        return record, self._live.setdefault(record.id, Live(record.id))

    def look_at_limits(self, live: Live, status: ExitStatus | None = None) -> None:
        """Tells of limits that the sandbox has met, if it has."""
        if live.sandbox and (events := live.meter.events(live.sandbox, status)):
            self._store.post_events(events)

    @property
    def live(self) -> Mapping[str, Live]:
        return self._live

    async def tell(self, record: SandboxRecord, kind: str, **body: Any) -> None:
        await self._store.append_events([event_of(record, kind, **body)])


def _blueprint(record: SandboxRecord) -> Blueprint:
    return msgspec.convert(record.blueprint, Blueprint)


def _with_defaults(options: ProcessOptions | None, record: SandboxRecord) -> ProcessOptions:
    """What the sandbox says of its commands, where the caller says nothing."""
    options = options or ProcessOptions()
    seconds = options.timeout_seconds
    if seconds is None:
        seconds = record.blueprint.get("limits", {}).get("exec_timeout")
    return msgspec.structs.replace(
        options, env={**record.env, **options.env}, timeout_seconds=seconds
    )


def _words(error: BaseException) -> str:
    if isinstance(error, AgentKernelError):
        return error.message
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
