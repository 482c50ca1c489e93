"""The life of a sandbox: made, started, stopped, removed.

Every change is a row before it is a fact: `creating` and `removing` are what a crash leaves, and
what the next start completes or takes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from agentkernel import faults
from agentkernel.audit.trail import audited
from agentkernel.backends.base import Blueprint, Progress, Sandbox, SandboxUsage, VolumeMount
from agentkernel.backends.registry import Backends
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    NetworkUnavailableError,
    NotFoundError,
)
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.agents.agents import Agents
from agentkernel.kernel.changes import Changes
from agentkernel.kernel.image_holds import holding_images
from agentkernel.kernel.image_use import with_image
from agentkernel.kernel.images import Images
from agentkernel.kernel.insight import Known, end_counted
from agentkernel.kernel.jobs import Jobs
from agentkernel.kernel.live import Live
from agentkernel.kernel.looks import Looks
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.network_making import NetworkMaking, has_any
from agentkernel.kernel.networks import Networks
from agentkernel.kernel.ports import Ports, wanted_ports
from agentkernel.kernel.rows import insert_row
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.store import Idempotency, SandboxRecord, event_of
from agentkernel.kernel.system import System
from agentkernel.kernel.template_model import applied
from agentkernel.kernel.templates import Templates
from agentkernel.kernel.updates import AtEnd
from agentkernel.kernel.volumes import Volumes
from agentkernel.kernel.workspaces import Workspaces, with_branch
from agentkernel.network.secrets.bindings import guest_environment

LOCAL_OWNER = "local"


class Lives(Changes, Looks):
    """The part of a `Kernel` that begins and ends sandboxes. `id` is an id or a name."""

    backends: Backends
    jobs: Jobs
    ports: Ports
    secrets: Secrets
    networks: Networks
    volumes: Volumes
    workspaces: Workspaces
    system: System
    images: Images
    templates: Templates
    agents: Agents
    _admission: Admission
    _making: NetworkMaking

    @audited("sandbox.create")
    @holding_images
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
        secrets_of: str | None = None,
        building: bool = False,
        mounts: Sequence[VolumeMount] = (),
    ) -> SandboxRecord:
        """Makes and starts a sandbox. When it raises, nothing of it is left.

        `id`: the one it is to have. A record with another one was there before, by `idempotency`.
        `owned`: it ends with this process, however that ends, and is removed by the next Kernel.
        `secrets_of`: whose secrets it may use; its owner's, unless given. `building`: its changes
        are to become a layer. `mounts`: volumes that it has besides those of the spec.
        """
        for what, seconds in (("ttl", ttl_seconds), ("idle timeout", idle_seconds)):
            if seconds is not None and not seconds > 0:
                raise InvalidInputError(f"the {what} must be more than 0 s")
        spec = applied(spec)
        if spec.agents:
            spec, kits = await self.agents.equip(spec, owner=secrets_of or owner, progress=progress)
            mounts = [*mounts, *kits]
        backend = self.backends[spec.backend]
        if spec.ephemeral and "stop" in (on_ttl, on_idle):
            raise InvalidInputError(
                "a sandbox whose files are in memory can't be stopped, only removed",
                hint="leave on_ttl and on_idle out, or make one that is kept",
            )
        if owned and not spec.ephemeral:
            raise InvalidInputError("what ends with this process can't be kept")
        at_end: AtEnd = "remove" if spec.ephemeral else "stop"
        self._admission.check(len(self._live))
        blueprint = await with_branch(expand(spec, owned=owned))
        blueprint = msgspec.structs.replace(blueprint, building=building)
        blueprint = await with_image(blueprint, spec, self.images, self.state_dir, progress)
        bound = await self.secrets.resolve(spec.secrets, owner=secrets_of or owner)
        setting = self._making.setting(spec.network, spec.profile, bound)
        if id is not None:
            blueprint = msgspec.structs.replace(blueprint, id=id)
        if has_any(setting):
            view = await backend.image_view(blueprint, progress)
            setup = await self._making.setup(setting, view, name or blueprint.id)
            blueprint = msgspec.structs.replace(blueprint, network=setup)
        self.system.require_space()
        self.trail.found(blueprint.id, name)
        volumes = await self.volumes.find(
            spec, owner, workspace=blueprint.workspace, besides=mounts
        )
        blueprint = msgspec.structs.replace(blueprint, volumes=volumes)
        now = time.time()
        record = SandboxRecord(
            id=blueprint.id,
            name=name,
            owner=owner,
            backend=backend.name,
            blueprint=msgspec.to_builtins(blueprint),
            env={**guest_environment(bound), **spec.env},
            labels=dict(labels or {}),
            config=None if spec.config is None else msgspec.to_builtins(spec.config),
            ephemeral=spec.ephemeral,
            created_at=now,
            updated_at=now,
            ttl_seconds=ttl_seconds,
            idle_seconds=idle_seconds,
            on_ttl=on_ttl or at_end,
            on_idle=on_idle or at_end,
            network=msgspec.to_builtins(setting) if blueprint.network else None,
            ports=msgspec.to_builtins(wanted_ports(spec.ports)) or None,
        )
        try:
            while True:
                inserted = await insert_row(self._store, record, idempotency)
                if inserted.created:
                    asked = spec.network is not None or bool(spec.secrets)
                    made = await self._make(inserted.record, blueprint, progress, asked)
                    return made if building else await self.templates.begin(made, new=True)
                if settled := await self._settled(inserted.record):
                    return settled
        except BaseException:
            await self.volumes.take_back(volumes)
            raise

    async def _make(
        self,
        record: SandboxRecord,
        blueprint: Blueprint,
        progress: Progress | None,
        network_asked: bool,
    ) -> SandboxRecord:
        """From a row to a running sandbox, or neither."""
        live = self._live[blueprint.id] = Live(blueprint.id)
        backend = self.backends[record.backend]
        async with live.changing:
            try:
                faults.point("create.row")
                self.volumes.hold(record, blueprint)
                ports = self.ports.open_new(record)
                try:
                    live.begin(await backend.create(blueprint, progress))
                except NetworkUnavailableError as exc:
                    if network_asked:
                        raise
                    record, blueprint = await self._without_network(record, blueprint, exc)
                    live.begin(await backend.create(blueprint, progress))
                await self._open_network(record, live)
                faults.point("create.connected")
                made = await self._running(record, "sandbox.created", ports=ports)
                self.ports.serve(live)
                self.workspaces.begin(blueprint, record.backend)
                faults.point("create.done")
                return made
            except BaseException as exc:
                live.failure = exc
                self.ports.close(record.id)
                failed = event_of(record, "sandbox.create_failed", reason=_words(exc))
                try:
                    await self.networks.release(record.id)
                    if live.sandbox:
                        await live.sandbox.destroy()
                    elif not blueprint.owned:
                        await backend.remove(blueprint.id)
                except AgentKernelError as left:
                    # The row stays for what could not be removed: to be removed again, by anybody.
                    await self._store.update_sandbox(
                        record.id, state="removing", error=left.message, events=[failed]
                    )
                    raise exc from left
                self.volumes.release(record.id)
                try:
                    await self._store.remove_sandbox(blueprint.id, events=[failed])
                finally:
                    # Last, so that whoever finds the row finds out why it goes.
                    self._live.pop(blueprint.id, None)
                raise

    async def _without_network(
        self, record: SandboxRecord, blueprint: Blueprint, why: NetworkUnavailableError
    ) -> tuple[SandboxRecord, Blueprint]:
        """What nobody asked for is not worth a sandbox: it is made without, and says so."""
        blueprint = msgspec.structs.replace(blueprint, network=None, without_network=why.message)
        record = await self._store.update_sandbox(
            record.id, blueprint=msgspec.to_builtins(blueprint), network=None
        )
        return record, blueprint

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
                live.check_answers()
                return record
            if record.ephemeral:
                raise ConflictError(
                    "the files of this sandbox were in memory and are gone", hint="make another"
                )
            faults.point("start.begin")
            async with _held_unless_done(live):
                await self._end(record, live)
            blueprint = blueprint_of(record)
            self.volumes.hold(record, blueprint)
            try:
                live.begin(await self.backends[record.backend].start(blueprint))
            except BaseException:
                # When it raises, nothing runs.
                self.volumes.release(record.id)
                raise
            try:
                await self._open_network(record, live)
                faults.point("start.connected")
                record = await self._running(record, "sandbox.started")
            except BaseException:
                await self._end(record, live)
                raise
            await self.ports.open_again(record, live)
            faults.point("start.done")
        return await self.templates.begin(record, new=False)

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
        async with live.changing, _held_unless_done(live):
            faults.point("stop.begin")
            usage, lost = await self._end(record, live, grace_seconds)
            faults.point("stop.ended")
            body = {"reason": reason, "lost_jobs": lost, "usage": msgspec.to_builtins(usage)}
            known = msgspec.structs.replace(Known.of(record), usage=usage)
            record = await self._store.update_sandbox(
                record.id,
                state="stopped",
                handle=known.handle(),
                expires_at=None,
                error=None,
                events=[event_of(record, "sandbox.stopped", **body)],
            )
            faults.point("stop.done")
            return record

    async def _end(
        self, record: SandboxRecord, live: Live, grace_seconds: float = 0.0
    ) -> tuple[SandboxUsage | None, int]:
        """Ends every process, whoever holds them; what they used, and how many jobs that cost.
        Preconditions: `changing` is held."""
        await self.networks.release(record.id)
        self.ports.close(record.id)
        sandbox, live.sandbox = live.sandbox, None
        usage = await end_counted(sandbox, lambda it: it.stop(grace_seconds))
        # What was never ours: a start that was cut off, or one that did not answer when we came.
        await self.backends[record.backend].end(record.id)
        self.volumes.release(record.id)
        lost = await self._store.mark_jobs_lost(record.id)
        live.running_jobs.clear()
        return usage, len(lost)

    @audited("sandbox.remove")
    async def remove(
        self,
        id: str,
        *,
        owner: str | None = None,
        reason: str = "asked",
        taking: Callable[[Sandbox], Awaitable[None]] | None = None,
    ) -> None:
        """Ends it and removes every trace but its events. `taking` gets hold of its files between
        the two."""
        record, live = await self._find(id, owner)
        backend = self.backends[record.backend]
        async with live.changing, _held_unless_done(live):
            await self._store.update_sandbox(record.id, state="removing")
            faults.point("remove.row")
            await self.workspaces.end(record.id)
            await self.networks.release(record.id)
            self.ports.close(record.id)
            sandbox, live.sandbox = live.sandbox, None
            if taking is not None and sandbox is not None:
                await sandbox.usage()  # what only a running one can say
                await sandbox.stop()
                await taking(sandbox)
            usage = await end_counted(sandbox, lambda it: it.destroy())
            if not sandbox:
                await backend.remove(record.id)
            self.volumes.release(record.id)
            self.networks.remove(record.id)
            faults.point("remove.files")
            usage = usage or Known.of(record).usage
            body = {"reason": reason, "usage": msgspec.to_builtins(usage)}
            await self._store.remove_sandbox(
                record.id, events=[event_of(record, "sandbox.removed", **body)]
            )
            self._live.pop(record.id, None)
            faults.point("remove.done")

    async def _remove_pruned(self, record: SandboxRecord) -> None:
        await self.remove(record.id, reason="pruned")

    async def _running(self, record: SandboxRecord, kind: str, **changes: Any) -> SandboxRecord:
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
            **changes,
        )
        self._reaper.wake()
        return record

    async def _open_network(self, record: SandboxRecord, live: Live) -> None:
        if live.sandbox and (setting := setting_of(record)):
            await self.networks.attach(live.sandbox, record.owner, setting)


@contextlib.asynccontextmanager
async def _held_unless_done(live: Live) -> AsyncIterator[None]:
    """In the block a sandbox is ended. If that fails it is not forgotten: who watches it completes
    the end, and its row tells."""
    sandbox = live.sandbox
    try:
        yield
    except BaseException:
        live.sandbox = sandbox
        raise


def blueprint_of(record: SandboxRecord) -> Blueprint:
    return msgspec.convert(record.blueprint, Blueprint)


def _words(error: BaseException) -> str:
    if isinstance(error, AgentKernelError):
        return error.message
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
