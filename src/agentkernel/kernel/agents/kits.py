"""Kits: agents as they are installed, once, for all of their sandboxes: `kernel.agents.kits`.

A kit is a volume of ours, which every sandbox of the agent has read-only. What must hold: a kit
that can be found is whole and has worked once; its volume is a row before it is a fact, and one
that is not ready is removed by the next start. The same definition is the same kit: a new one is
made beside the old one, which stays as long as a sandbox has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from builtins import list as List
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from agentkernel import faults
from agentkernel.agents.definition import AgentDefinition
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Progress, VolumeMount
from agentkernel.errors import AgentKernelError, ConflictError, NotFoundError
from agentkernel.kernel.agents.kit_model import (
    KITS,
    AgentDetails,
    AgentInfo,
    KitInfo,
    KitRecord,
    definition_hash,
    modes_of,
)
from agentkernel.kernel.agents.kit_records import ChosenDefinitions, KitRecords
from agentkernel.kernel.building.model import BuildEvent, BuildNote, BuildStep, Report
from agentkernel.kernel.volume_records import VolumeInfo
from agentkernel.kernel.volumes import OURS

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel


class Kits:
    """See the module."""

    def __init__(self, kernel: Kernel, trail: Trail, definitions: ChosenDefinitions) -> None:
        self._kernel = kernel
        self.trail = trail
        self._definitions = definitions
        self._records = KitRecords(kernel.state_dir / "agents")
        self._under_way: dict[str, _Installation] = {}

    async def load(self) -> None:
        """Preconditions: volumes are loaded."""
        if self._records.any():
            self._records.load(info.id for info in await self._kernel.volumes.list(OURS))

    async def close(self) -> None:
        """Ends what is under way; nothing of it is left."""
        tasks = [installation.task for installation in self._under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # -- for sessions ----------------------------------------------------------------------------

    async def ready(
        self,
        definition: AgentDefinition,
        *,
        host_env: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> VolumeMount:
        """Its kit, read-only; made now if it is not there yet. Raises AgentInstallError."""
        record = self._records.find(definition_hash(definition))
        if record is None:
            record = await self._make_ready(
                definition.name, definition, host_env or {}, _in_words(definition, progress)
            )
        return VolumeMount(
            id=record.id,
            name=_volume_name(definition),
            path=f"{KITS}/{definition.name}",
            read_only=True,
        )

    @audited("agent.install")
    async def _make_ready(
        self, name: str, definition: AgentDefinition, host_env: Mapping[str, str], report: Report
    ) -> KitRecord:
        self.trail.found(None, None)
        return await self._made(definition, host_env, report)

    # -- looking ---------------------------------------------------------------------------------

    async def list(self) -> List[AgentInfo]:
        """By name."""
        volumes = await self._volumes()
        return [self._info(name, volumes) for name in self._definitions.names()]

    async def get(self, name: str) -> AgentDetails:
        """With what its kits take on the disk. Raises NotFoundError, InvalidInputError."""
        definition = self._definitions.get(name)
        info = self._info(name, await self._volumes(usage=True))
        return AgentDetails(
            **msgspec.structs.asdict(info), definition=msgspec.to_builtins(definition)
        )

    def _info(self, name: str, volumes: Mapping[str, VolumeInfo]) -> AgentInfo:
        try:
            definition, pinned = self._definitions.get(name), self._definitions.pinned(name)
        except AgentKernelError as exc:
            return AgentInfo(name=name, own=self._definitions.own(name), problem=exc.message)
        current = definition_hash(definition)
        kits = [
            _kit_info(record, volumes[record.id], current)
            for record in self._records.all()
            if record.agent == name and record.id in volumes
        ]
        return AgentInfo(
            name=name,
            title=definition.title,
            home=definition.home,
            version=definition.version,
            pinned=pinned.version,
            own=self._definitions.own(name),
            modes=modes_of(definition),
            tested=definition.tested,
            kit=next((kit for kit in kits if kit.current), None),
            older=[kit for kit in kits if not kit.current],
        )

    async def _volumes(self, *, usage: bool = False) -> dict[str, VolumeInfo]:
        found = await self._kernel.volumes.list(OURS, usage=usage)
        return {info.id: info for info in found if info.state == "ready"}

    # -- installing ------------------------------------------------------------------------------

    @audited("agent.install")
    async def install(
        self,
        name: str,
        *,
        report: Report,
        host_env: Mapping[str, str] | None = None,
        owner: str = "local",
    ) -> KitInfo:
        """The version that is pinned or chosen, if it is not there yet. Raises NotFoundError,
        AgentInstallError."""
        definition = self._definitions.get(name)
        self.trail.found(None, name)
        return await self._shown(await self._made(definition, host_env or {}, report))

    @audited("agent.update")
    async def update(
        self,
        name: str,
        *,
        report: Report,
        version: str | None = None,
        host_env: Mapping[str, str] | None = None,
        owner: str = "local",
    ) -> KitInfo:
        """The version that is pinned now, or `version` from now on; then older kits that no sandbox
        has go. When it raises, all is as it was."""
        definition = self._definitions.pinned(name)
        self.trail.found(None, name)
        if version is not None:
            definition = msgspec.structs.replace(definition, version=version)
        record = await self._made(definition, host_env or {}, report)
        self._definitions.versions.choose(name, version)
        for volume in await self.unused():
            if volume.name.rpartition("-")[0] == name:
                with contextlib.suppress(ConflictError):
                    await self.drop(volume.id)
        return await self._shown(record)

    @audited("agent.remove")
    async def remove(self, name: str, *, owner: str | None = None) -> None:
        """All kits of it. Raises ConflictError for those that sandboxes have, which stay."""
        kits = [record for record in self._records.all() if record.agent == name]
        if not kits:
            self._definitions.get(name)
            raise NotFoundError(
                f"{name} is not installed", hint=f"agentkernel agent install {name}"
            )
        self.trail.found(None, name)
        problem: AgentKernelError | None = None
        for record in kits:
            try:
                await self.drop(record.id)
            except ConflictError:
                # Not whose: they may be another's.
                problem = ConflictError(
                    f"{name} {record.version} is in use: sandboxes have it, running or stopped",
                    hint="remove yours first: `agentkernel sandbox list --label "
                    f"agentkernel.agent={name}`",
                    agent=name,
                    version=record.version,
                )
        if problem is not None:
            raise problem

    async def unused(self) -> List[VolumeInfo]:
        """Kits that no sandbox has and no new session will."""
        kept = set()
        for record in self._records.all():
            try:
                wanted = definition_hash(self._definitions.get(record.agent))
            except NotFoundError:
                continue
            except AgentKernelError:
                wanted = record.definition  # its file is broken now, and may be mended
            if record.definition == wanted:
                kept.add(record.id)
        volumes = await self._volumes(usage=True)
        return [one for one in volumes.values() if one.id not in kept and not one.sandboxes]

    async def drop(self, id: str) -> None:
        """One kit. Raises ConflictError if a sandbox has it."""
        await self._kernel.volumes.remove(id)
        faults.point("kit.dropped")
        self._records.remove(id)

    async def _shown(self, record: KitRecord) -> KitInfo:
        return _kit_info(record, (await self._volumes(usage=True))[record.id], record.definition)

    async def _made(
        self, definition: AgentDefinition, host_env: Mapping[str, str], report: Report
    ) -> KitRecord:
        """The kit of this definition; of several who want it at once one makes it, and the others
        wait for that."""
        key = definition_hash(definition)
        installation = self._under_way.get(key)
        while installation is not None and installation.given_up:
            # All who wanted it have left: it is there no more when what it made is gone.
            await asyncio.wait((installation.task,))
            self._over(key)
            installation = self._under_way.get(key)
        record = self._records.find(key)
        if record is not None:
            return record
        if installation is not None and not installation.task.done():
            await report(BuildNote(text=f"{definition.name} is being installed: waiting for that"))
        else:
            installation = _Installation(
                report, lambda told: self._make(definition, key, host_env, told)
            )
            self._under_way[key] = installation
            installation.task.add_done_callback(lambda _: self._over(key))
        return await installation.join()

    def _over(self, key: str) -> None:
        found = self._under_way.get(key)
        if found is not None and found.task.done():
            del self._under_way[key]

    async def _make(
        self, definition: AgentDefinition, key: str, host_env: Mapping[str, str], report: Report
    ) -> KitRecord:
        from agentkernel.kernel.agents.kit_installing import install

        written = None
        try:
            async with self._kernel.volumes.filling(_volume_name(definition)) as mount:
                locks = await install(self._kernel, definition, mount, host_env, report)
                written = KitRecord(
                    id=mount.id,
                    agent=definition.name,
                    version=definition.version,
                    definition=key,
                    installed_at=time.time(),
                    locks=locks,
                )
                self._records.write(written)
                faults.point("kit.recorded")
        except BaseException:
            if written is not None:
                self._records.remove(written.id)
            raise
        self._records.add(written)
        return written


class _Installation:
    """One that is under way. Whoever began it is told how far it is; it is cancelled when the last
    one who waits for it leaves."""

    def __init__(
        self, report: Report, work: Callable[[Report], Coroutine[Any, Any, KitRecord]]
    ) -> None:
        self._report: Report | None = report
        self._telling: asyncio.Future[None] | None = None
        self._waiting = 0
        self.given_up = False
        self.task = asyncio.ensure_future(work(self._tell))
        self.task.add_done_callback(_seen)

    async def _tell(self, event: BuildEvent) -> None:
        """Waits for whoever is told, as long as they are there."""
        if self._report is None:
            return
        self._telling = asyncio.ensure_future(self._report(event))
        try:
            await asyncio.wait((self._telling,))
        finally:
            self._telling.cancel()

    async def join(self) -> KitRecord:
        is_first = self._waiting == 0
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if is_first:
                self._report = None
                if self._telling is not None:
                    self._telling.cancel()
            if not self._waiting and not self.task.done():
                self.given_up = True
                self.task.cancel()
                await asyncio.wait((self.task,))


def _seen(task: asyncio.Future[KitRecord]) -> None:
    if not task.cancelled():
        task.exception()  # whoever asked may have left


def _volume_name(definition: AgentDefinition) -> str:
    return f"{definition.name}-{definition_hash(definition)[:16]}"


def _kit_info(record: KitRecord, volume: VolumeInfo, current: str) -> KitInfo:
    return KitInfo(
        **msgspec.structs.asdict(record),
        current=record.definition == current,
        sandboxes=len(volume.sandboxes),
        used_bytes=volume.used_bytes,
    )


def _in_words(definition: AgentDefinition, progress: Progress | None) -> Report:
    """For those who are told in sentences."""

    async def tell(event: BuildEvent) -> None:
        if progress is not None and isinstance(event, BuildStep):
            progress(
                f"installing {definition.title} {definition.version}, once: step {event.number} "
                f"of {event.steps}"
            )

    return tell
