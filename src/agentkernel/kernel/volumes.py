"""Volumes: directories with names that outlive the sandboxes which have them: `kernel.volumes`.

Every change is a row before it is a fact, as with sandboxes: a volume that is not `ready` is not
there yet or not any more, and the next start removes what there is of it.

What must hold: all records are in memory, and who runs with which volume, too; so to look whether
a volume may be had, and to have it, is one step, between which nobody else comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from builtins import list as List
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from agentkernel import faults
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Backend, Blueprint, Sandbox, VolumeMount
from agentkernel.backends.local.volumes import VolumeFiles
from agentkernel.config.volumes import VolumeRequest, is_below, parse_volumes
from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
)
from agentkernel.ids import check_name, new_id
from agentkernel.kernel.spec import MAXIMUM_BYTES, SandboxSpec, expand
from agentkernel.kernel.store import NewEvent, Overseer, SandboxRecord, Store, VolumeRecord
from agentkernel.kernel.volume_archives import EXPORT_PATH, read_archive, write_archive
from agentkernel.kernel.volume_records import MINIMUM_QUOTA, VolumeInfo, info_of, volumes_of
from agentkernel.space import require_space
from agentkernel.workspaces.model import Workspace

log = logging.getLogger("agentkernel.kernel")

MAX_VOLUMES: Final = 1000
OURS: Final = "@agentkernel"
"""Owns volumes that are kept for everybody, such as kits of agents. No caller can be called so."""
# Each has a sandbox, which nobody else counts.
MAX_ARCHIVES: Final = 8
_IMPORT: Final = "an import"
_EXPORT: Final = "an export"
_WAIT: Final = "wait for its end"


class Volumes:
    """All volumes of a kernel. `id` in its calls is an id or a name."""

    def __init__(self, store: Store, trail: Trail, state_dir: Path, engine: Backend) -> None:
        self._store = store
        self.trail = trail
        self._state_dir = state_dir
        self._files = VolumeFiles(state_dir)
        self._engine = engine
        self._records: dict[str, VolumeRecord] = {}
        # Volume, who runs with it, and that one's name.
        self._holders: dict[str, dict[str, str]] = {}
        self._archives = 0
        self._naming = asyncio.Lock()
        self._finding = asyncio.Lock()

    async def load(self) -> None:
        """Reads the rows, and removes what was left half made or half removed. Files without a row
        are not ours to remove: a row comes before its files and goes after them, so it was lost.
        Preconditions: no process of an import or export runs any more."""
        faults.point("volume.load")
        for record in await self._store.volumes():
            self._records[record.id] = record
            if record.state != "ready":
                self.trail.note("volume.remove", name=record.name, reason="interrupted")
                with contextlib.suppress(AgentKernelError):
                    await self._remove(record, "interrupted")
        for id in self._files.ids():
            if id not in self._records and not self._files.remove_empty(id):
                log.warning("the files of a volume that no record knows are kept: volumes/%s", id)

    # -- looking ---------------------------------------------------------------------------------

    async def list(self, owner: str | None = None, *, usage: bool = False) -> List[VolumeInfo]:
        """In the order they were made; of all owners, without ours, if none is given. `usage`: with
        what each takes on the disk, which takes as long as to look at all of their files."""
        records = [
            record
            for record in self._records.values()
            if (record.owner != OURS if owner is None else record.owner == owner)
        ]
        return await self._shown(records, usage)

    async def inspect(self, id: str, *, owner: str | None = None) -> VolumeInfo:
        return (await self._shown([self._get(id, owner)], True))[0]

    async def _shown(self, records: Sequence[VolumeRecord], usage: bool) -> List[VolumeInfo]:
        sandboxes = await self._store.all_sandboxes()
        shown = [info_of(record, sandboxes) for record in records]
        if not usage:
            return shown
        sizes = await self._files.measure([info.id for info in shown])
        return [
            msgspec.structs.replace(
                info,
                used_bytes=sizes[info.id].bytes,
                used_files=sizes[info.id].entries,
                used_complete=sizes[info.id].complete,
            )
            for info in shown
        ]

    def _get(self, id: str, owner: str | None) -> VolumeRecord:
        """By id first, which is all that an Overseer has of others' volumes. Ours are no caller's:
        what knows of them has to hear of their end."""
        found = self._records.get(id)
        sees = isinstance(owner, Overseer) and found is not None and found.owner != OURS
        if found and (owner is None or sees or found.owner == owner):
            return found
        named = [
            record
            for record in self._records.values()
            if record.name == id and (owner is None or record.owner == owner)
        ]
        if len(named) > 1:
            raise ConflictError(f"several owners have a volume named {id}", hint="use its id")
        if not named:
            raise NotFoundError(f"no volume {id[:64]}", hint="`agentkernel volume list` shows them")
        return named[0]

    # -- life ------------------------------------------------------------------------------------

    @audited("volume.create")
    async def create(
        self,
        name: str,
        *,
        owner: str,
        quota_bytes: int | None = None,
        exclusive: bool = False,
    ) -> VolumeRecord:
        """An empty volume. Raises ConflictError for a name that is taken, UnenforceableError for a
        quota that can't be held here. When it raises, nothing of it is left."""
        self.trail.found(None, None)
        async with self._making(name, owner, quota_bytes, exclusive) as record:
            faults.point("volume.made")
        return self._records[record.id]

    @audited("volume.import")
    async def import_archive(
        self,
        name: str,
        pieces: AsyncIterable[bytes],
        *,
        owner: str,
        quota_bytes: int | None = None,
        exclusive: bool = False,
    ) -> VolumeRecord:
        """A new volume from a tar archive, which may say whatever it likes: it is unpacked inside a
        sandbox that has nothing but the volume. It is there whole, or not at all."""
        self.trail.found(None, None)
        async with (
            self._making(name, owner, quota_bytes, exclusive) as record,
            self._worker(record, _IMPORT, read_only=False) as sandbox,
        ):
            await write_archive(sandbox.channel, self._with_space(pieces))
            faults.point("volume.imported")
        return self._records[record.id]

    @contextlib.asynccontextmanager
    async def filling(self, name: str) -> AsyncIterator[VolumeMount]:
        """A new volume of ours: whole at the end of the block, until which only sandboxes that are
        made with this mount have it; or nothing of it, if the block raises or this process dies."""
        async with self._making(name, OURS, None, False) as record:
            yield mount_of(record, EXPORT_PATH, read_only=False)

    async def _with_space(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        """The reserve is looked at on the way: an archive does not say how large it is."""
        since = 0
        async for piece in pieces:
            since += len(piece)
            if since >= 16 << 20:
                require_space(self._state_dir)
                since = 0
            yield piece

    @contextlib.asynccontextmanager
    async def _making(
        self, name: str, owner: str, quota_bytes: int | None, exclusive: bool
    ) -> AsyncIterator[VolumeRecord]:
        """From a row to a volume that is ready at the end of the block, or neither."""
        check_name(name, "volume")
        if quota_bytes is not None and not MINIMUM_QUOTA <= quota_bytes <= MAXIMUM_BYTES:
            raise InvalidInputError(f"a volume's quota is at least {MINIMUM_QUOTA >> 20} MiB")
        require_space(self._state_dir)
        record = await self._insert(name, owner, quota_bytes, exclusive)
        try:
            faults.point("volume.row")
            await self._files.make(record.id, quota_bytes)
            yield record
            event = _event(record, "volume.created")
            await self._store.set_volume_state(record.id, "ready", events=[event])
            self._records[record.id] = msgspec.structs.replace(record, state="ready")
            faults.point("volume.done")
        except BaseException:
            if self._records[record.id].state == "creating":
                # What can't be taken back now the next start takes back.
                with contextlib.suppress(AgentKernelError):
                    await asyncio.shield(self._remove(record, "it could not be made"))
            raise

    async def _insert(
        self, name: str, owner: str, quota_bytes: int | None, exclusive: bool
    ) -> VolumeRecord:
        async with self._naming:
            if any(one.name == name and one.owner == owner for one in self._records.values()):
                raise ConflictError(
                    f"there is a volume named {name} already",
                    hint="choose another name, or remove that one first",
                )
            others = sum(one.owner != OURS for one in self._records.values())
            if owner != OURS and others >= MAX_VOLUMES:
                raise ResourceExhaustedError(
                    f"there are {others} volumes, which is the most there may be",
                    hint="remove some: `agentkernel volume list`",
                )
            record = VolumeRecord(
                id=new_id(),
                name=name,
                owner=str(owner),
                exclusive=exclusive,
                quota_bytes=quota_bytes,
                created_at=time.time(),
            )
            # Known from here on, whatever becomes of a caller who goes.
            self._records[record.id] = record
            try:
                await asyncio.shield(self._store.insert_volume(record))
            except AgentKernelError:
                del self._records[record.id]
                raise
            except asyncio.CancelledError:
                await self._remove(record, "its caller went")
                raise
            return record

    @audited("volume.remove", "volume")
    async def remove(self, id: str, *, owner: str | None = None, force: bool = False) -> None:
        """With all that is in it. Raises ConflictError while a sandbox has it; `force`: only while
        one runs with it, and those that are stopped can't be started any more."""
        record = self._get(id, owner)
        self.trail.found(None, None)
        if record.state == "creating":
            raise ConflictError(f"the volume {record.name} is being made", hint=_WAIT)
        self._refuse_held(record)
        # From here on nobody gets it.
        self._records[record.id] = msgspec.structs.replace(record, state="removing")
        try:
            if not force:
                await self._refuse_named(record)
            await self._store.set_volume_state(record.id, "removing")
        except BaseException:
            self._records[record.id] = record
            raise
        faults.point("volume.remove_row")
        await asyncio.shield(self._remove(record, "asked"))

    async def _remove(self, record: VolumeRecord, reason: str) -> None:
        """Its files, then its row. Idempotent."""
        self._records[record.id] = msgspec.structs.replace(record, state="removing")
        await self._files.remove(record.id)
        faults.point("volume.files_removed")
        event = _event(record, "volume.removed", reason=reason)
        await self._store.remove_volume(record.id, events=[event])
        self._records.pop(record.id, None)

    async def _refuse_named(self, record: VolumeRecord) -> None:
        users = info_of(record, await self._store.all_sandboxes()).sandboxes
        if users:
            names = ", ".join(user.name or user.id for user in users[:5])
            raise ConflictError(
                f"the volume {record.name} belongs to sandboxes that are there: {names}",
                hint="remove them first, or use --force: they can't be started any more then",
                sandboxes=[user.id for user in users[:100]],
            )

    def _refuse_held(self, record: VolumeRecord, by: str = "", why: str = "in use") -> None:
        """Raises if anybody runs with it, but for `by`."""
        for holder, words in self._holders.get(record.id, {}).items():
            if holder != by:
                raise ConflictError(
                    f"the volume {record.name} is {why}: {words} has it",
                    hint=_WAIT
                    if words in (_EXPORT, _IMPORT)
                    else f"first: agentkernel sandbox stop {words}",
                    volume=record.name,
                    holder=holder,
                )

    @audited("volume.export", "volume")
    @contextlib.asynccontextmanager
    async def export(
        self, id: str, *, owner: str | None = None
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """A tar archive of all that is in it, in pieces, read inside a sandbox that has nothing
        else. Of a volume that sandboxes write to meanwhile each file is as it was at some time."""
        record = self._get(id, owner)
        self.trail.found(None, None)
        async with (
            self._worker(record, _EXPORT, read_only=True) as sandbox,
            contextlib.aclosing(read_archive(sandbox.channel)) as pieces,
        ):
            yield pieces

    @contextlib.asynccontextmanager
    async def _worker(
        self, record: VolumeRecord, words: str, *, read_only: bool
    ) -> AsyncIterator[Sandbox]:
        """A sandbox of this process's own that has the volume, no network and nothing of anybody's.
        It ends with this process."""
        if self._archives >= MAX_ARCHIVES:
            raise ResourceExhaustedError(
                f"{MAX_ARCHIVES} volumes are being imported or exported",
                hint="wait until one is done",
            )
        mount = mount_of(record, EXPORT_PATH, read_only)
        blueprint = expand(SandboxSpec(toolchains=False), owned=True)
        blueprint = msgspec.structs.replace(blueprint, volumes=(mount,), hostname="volume")
        self._hold([mount], blueprint.id, words, making=not read_only)
        self._archives += 1
        try:
            sandbox = await self._engine.create(blueprint)
            try:
                yield sandbox
            finally:
                await asyncio.shield(sandbox.destroy())
        finally:
            self._archives -= 1
            self.release(blueprint.id)

    # -- for sandboxes ---------------------------------------------------------------------------

    async def find(
        self,
        spec: SandboxSpec,
        owner: str,
        *,
        workspace: Workspace | None = None,
        besides: Sequence[VolumeMount] = (),
    ) -> tuple[VolumeMount, ...]:
        """Those that a spec names, made where there are none, and `besides`, whose places are
        taken. Raises InvalidInputError."""
        target = None if workspace is None else workspace.target
        requests = parse_volumes(spec.volumes, workspace=target)
        for mount in besides:
            _refuse_at(mount.path, requests)
        found = list(besides)
        for wanted in requests:
            is_new = False
            async with self._finding:  # of several who want a new one, one makes it
                try:
                    record = self._get(wanted.name, str(owner))
                except NotFoundError:
                    record, is_new = await self.create(wanted.name, owner=owner), True
            mount = mount_of(record, wanted.path, wanted.read_only)
            found.append(msgspec.structs.replace(mount, is_new=is_new))
        return tuple(found)

    async def take_back(self, mounts: Iterable[VolumeMount]) -> None:
        """Removes those that were made for a sandbox that came to nothing."""
        for mount in mounts:
            if mount.is_new:
                with contextlib.suppress(AgentKernelError):
                    await self.remove(mount.id)

    def hold(self, record: SandboxRecord, blueprint: Blueprint) -> None:
        """From now on the sandbox runs with its volumes. Raises NotFoundError for one that is gone,
        ConflictError for an exclusive one that another has."""
        self._hold(blueprint.volumes, record.id, record.name or record.id)

    def _hold(
        self, mounts: Sequence[VolumeMount], holder: str, words: str, *, making: bool = False
    ) -> None:
        for mount in mounts:
            record = self._records.get(mount.id)
            # One of ours is known only to whoever fills it, until it is whole.
            is_filled = making or (record is not None and record.owner == OURS)
            if record and record.state == "creating" and not is_filled:
                raise ConflictError(f"the volume {mount.name} is being made", hint=_WAIT)
            if record is None or record.state == "removing":
                raise NotFoundError(
                    f"the volume {mount.name} of this sandbox is gone",
                    hint="make another sandbox; a new volume of that name is another one",
                )
            if record.exclusive:
                self._refuse_held(record, holder, "exclusive, and in use")
        for mount in mounts:
            self._holders.setdefault(mount.id, {})[holder] = words

    def hold_again(self, record: SandboxRecord) -> None:
        """For one that was found running, or may be."""
        for mount in volumes_of(record):
            self._holders.setdefault(mount.id, {})[record.id] = record.name or record.id

    def release(self, holder: str) -> None:
        """It does not run any more. Idempotent."""
        for id in [id for id, holders in self._holders.items() if holders.pop(holder, None)]:
            if not self._holders[id]:
                del self._holders[id]


def mount_of(record: VolumeRecord, path: str, read_only: bool) -> VolumeMount:
    return VolumeMount(
        id=record.id,
        name=record.name,
        path=path,
        read_only=read_only,
        quota_bytes=record.quota_bytes,
        exclusive=record.exclusive,
    )


def _refuse_at(path: str, wanted: Iterable[VolumeRequest]) -> None:
    for one in wanted:
        if one.path == path or is_below(one.path, path) or is_below(path, one.path):
            raise InvalidInputError(
                f"the volume {one.name} can't be at {one.path}: the sandbox has something of its "
                f"own at {path}",
                hint="choose another place, such as /data",
            )


def _event(record: VolumeRecord, kind: str, **body: str) -> NewEvent:
    return NewEvent(
        kind=kind, owner=record.owner, body={"volume": record.id, "name": record.name, **body}
    )
