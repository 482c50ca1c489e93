"""What everything takes on the disk, and what of it can go: `kernel.system`.

Sizes are what files take, blocks and not lengths, read inside the user namespace that their ids
belong to. What is shared by several is counted once, where it is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from agentkernel.audit.files import DIRECTORY as AUDIT
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.local.directory import layers_in_use
from agentkernel.backends.local.volumes import Measured, measure
from agentkernel.errors import AgentKernelError, ResourceExhaustedError
from agentkernel.images import cache
from agentkernel.images.building.cache import build_cache_bytes, prune_build_cache
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.disk_records import ABOUT, DiskPart, DiskUsage, Kind, Pruned, PrunedItem
from agentkernel.kernel.image_care import Unused, is_of_an_image
from agentkernel.kernel.images import Images
from agentkernel.kernel.store import NewEvent, SandboxRecord, Store
from agentkernel.kernel.volume_records import VolumeInfo
from agentkernel.kernel.volumes import OURS, Volumes
from agentkernel.space import require_space, room_at

# A process may have looked a layer up and not have written down that a sandbox stands on it.
KEEP_LAYERS_SECONDS: Final = 600.0
KEEP_BUILDS_SECONDS: Final = 24 * 3600.0
_TELL_EVERY_SECONDS: Final = 60.0


class System:
    """See the module. `remove` removes a sandbox of an owner."""

    def __init__(
        self,
        store: Store,
        trail: Trail,
        state_dir: Path,
        volumes: Volumes,
        images: Images,
        kits: Kits,
        remove: Callable[[SandboxRecord], Awaitable[None]],
    ) -> None:
        self._store = store
        self.trail = trail
        self._state_dir = state_dir
        self._volumes = volumes
        self._remove = remove
        self._images = images
        self._kits = kits
        self._directory = images.store.directory
        self._told_at = -_TELL_EVERY_SECONDS

    def require_space(self, size: int = 0) -> None:
        """Raises ResourceExhaustedError, of which an event tells, unless there is room."""
        try:
            require_space(self._state_dir, size)
        except ResourceExhaustedError as exc:
            if time.monotonic() - self._told_at >= _TELL_EVERY_SECONDS:
                self._told_at = time.monotonic()
                self._store.post_events([NewEvent(kind="disk.low", body=dict(exc.details))])
            raise

    # -- df --------------------------------------------------------------------------------------

    async def df(self) -> DiskUsage:
        """Takes as long as to look at all files."""
        room = room_at(self._state_dir)
        records = await self._store.all_sandboxes()
        sandboxes = await self._sandboxes(records)
        volumes = await self._volumes.list(usage=True)
        layers = await self._layers()
        unused = await self._images.unused()
        parts = [
            _part("sandboxes", list(sandboxes.values()), [
                sandboxes[record.id] for record in records if record.state == "stopped"
            ]),
            _volume_part("volumes", volumes, [info for info in volumes if not info.sandboxes]),
            _volume_part(
                "kits", await self._volumes.list(OURS, usage=True), await self._kits.unused()
            ),
            _part("layers", list(layers.values()), [
                layers[path] for path in await self._unused_layers(unused) if path in layers
            ]),
            *await self._image_parts(unused),
            _part("records", await measure(sorted(self._state_dir.glob("state.db*")))),
            _part("audit", await measure([self._state_dir / AUDIT])),
            _part("logs", await measure(sorted(self._state_dir.glob("*.log*")))),
        ]  # fmt: skip
        return DiskUsage(
            path=str(self._state_dir),
            total_bytes=room.total,
            free_bytes=room.free,
            reserve_bytes=room.reserve,
            short=room.is_short,
            parts=parts,
        )

    async def _sandboxes(self, records: Sequence[SandboxRecord]) -> dict[str, Measured]:
        """Owned ones have their directory in another place than those that are kept."""
        places = [
            self._state_dir / ("runs" if record.blueprint.get("owned") else "sandboxes") / record.id
            for record in records
        ]
        found = await measure(places)
        return dict(zip((record.id for record in records), found, strict=True))

    async def _layers(self) -> dict[str, Measured]:
        paths = _directories(Path(cache.layers_dir(self._directory)))
        return dict(zip(map(str, paths), await measure(paths), strict=True))

    async def _unused_layers(self, unused: Unused) -> list[str]:
        """Those of images, and those made from this machine that nobody looked up lately."""
        made = await asyncio.to_thread(
            cache.unused, self._directory, self._mounted(), keep_unused_s=KEEP_LAYERS_SECONDS
        )
        return [*unused.layers, *(path for path in made if not is_of_an_image(path))]

    def _mounted(self) -> set[str]:
        return layers_in_use(self._state_dir / "runs", self._state_dir / "sandboxes")

    async def _image_parts(self, unused: Unused) -> list[DiskPart]:
        blobs = await measure(sorted((self._directory / "blobs" / "sha256").glob("*")))
        partial = await measure(sorted((self._directory / "partial").glob("*")))
        free = sum(unused.blobs.values())
        old = await asyncio.to_thread(build_cache_bytes, self._images.store, KEEP_BUILDS_SECONDS)
        builds = _part("builds", await measure([self._directory / "build-cache"]))
        return [
            msgspec.structs.replace(_part("blobs", blobs), reclaimable_bytes=free),
            _part("downloads", partial, partial),
            msgspec.structs.replace(builds, reclaimable_bytes=old),
        ]

    # -- prune -----------------------------------------------------------------------------------

    @audited("system.prune")
    async def prune(
        self,
        *,
        owner: str | None = None,
        sandboxes: bool = False,
        volumes: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Removes unused layers, blobs, parts of downloads and older kits; `sandboxes`: and the
        owner's stopped sandboxes; `volumes`: and the owner's volumes that then nobody has. What
        can't be removed is told, and keeps nothing else from going."""
        self.trail.found(None, None)
        items = [
            *(await self._prune_sandboxes(owner, dry_run) if sandboxes else []),
            *(await self._prune_volumes(owner, sandboxes, dry_run) if volumes else []),
            *await self._prune_kits(dry_run),
            *await self._prune_images(dry_run),
        ]
        freed = sum(item.bytes for item in items if item.problem is None)
        if items and not dry_run:
            body = {"items": len(items), "bytes": freed}
            self._store.post_events([NewEvent(kind="system.pruned", owner=owner, body=body)])
        return Pruned(dry_run=dry_run, items=items, bytes=freed)

    async def _stopped(self, owner: str | None) -> list[SandboxRecord]:
        return [
            record
            for record in await self._store.all_sandboxes()
            if record.state == "stopped" and (owner is None or record.owner == owner)
        ]

    async def _prune_sandboxes(self, owner: str | None, dry_run: bool) -> list[PrunedItem]:
        records = await self._stopped(owner)
        sizes = await self._sandboxes(records)
        items = []
        for record in records:
            item = PrunedItem(
                kind="sandboxes", id=record.id, name=record.name, bytes=sizes[record.id].bytes
            )
            items.append(item if dry_run else await _tried(item, self._remove(record)))
        return items

    async def _prune_volumes(
        self, owner: str | None, after_sandboxes: bool, dry_run: bool
    ) -> list[PrunedItem]:
        going = {record.id for record in await self._stopped(owner)} if after_sandboxes else set()
        items = []
        for info in await self._volumes.list(owner, usage=True):
            if info.state != "ready" or any(user.id not in going for user in info.sandboxes):
                continue
            item = PrunedItem(
                kind="volumes", id=info.id, name=info.name, bytes=info.used_bytes or 0
            )
            items.append(item if dry_run else await _tried(item, self._volumes.remove(info.id)))
        return items

    async def _prune_kits(self, dry_run: bool) -> list[PrunedItem]:
        items = []
        for info in await self._kits.unused():
            item = PrunedItem(kind="kits", id=info.id, name=info.name, bytes=info.used_bytes or 0)
            items.append(item if dry_run else await _tried(item, self._kits.drop(info.id)))
        return items

    async def _prune_images(self, dry_run: bool) -> list[PrunedItem]:
        """Nothing of images while one is fetched or built: then its blobs have no name yet."""
        unused = await self._images.unused()
        layers = await self._unused_layers(unused)
        sizes = await measure([Path(path) for path in layers])
        items = [
            *(
                PrunedItem(kind="layers", id=Path(path).name, bytes=size.bytes)
                for path, size in zip(layers, sizes, strict=True)
            ),
            *(PrunedItem(kind="blobs", id=id, bytes=size) for id, size in unused.blobs.items()),
            *(PrunedItem(kind="downloads", id=id, bytes=n) for id, n in unused.downloads.items()),
        ]
        old = await asyncio.to_thread(build_cache_bytes, self._images.store, KEEP_BUILDS_SECONDS)
        if old:
            items.append(PrunedItem(kind="builds", id="build-cache", bytes=old))
        if dry_run or not items:
            return items
        try:
            await asyncio.to_thread(self._prune_builds)
            await self._images.prune()
            await asyncio.to_thread(self._prune_made)
        except AgentKernelError as exc:
            return [msgspec.structs.replace(item, problem=exc.message) for item in items]
        return items

    def _prune_builds(self) -> None:
        with self._images.store.removing():
            prune_build_cache(self._images.store, unused_seconds=KEEP_BUILDS_SECONDS)

    def _prune_made(self) -> None:
        """Layers of this machine; those of images have gone, or are needed."""
        kept = self._mounted()
        for path in cache.unused(self._directory, kept, keep_unused_s=KEEP_LAYERS_SECONDS):
            if not is_of_an_image(path):
                cache.discard(self._directory, path)


async def _tried(item: PrunedItem, work: Awaitable[None]) -> PrunedItem:
    try:
        await work
    except AgentKernelError as exc:
        return msgspec.structs.replace(item, problem=exc.message)
    return item


def _volume_part(
    kind: Kind, found: Sequence[VolumeInfo], reclaimable: Sequence[VolumeInfo]
) -> DiskPart:
    return DiskPart(
        kind=kind,
        about=ABOUT[kind],
        count=len(found),
        bytes=sum(info.used_bytes or 0 for info in found),
        reclaimable_bytes=sum(info.used_bytes or 0 for info in reclaimable),
        complete=all(info.used_complete for info in found),
    )


def _directories(parent: Path) -> list[Path]:
    return [path for path in sorted(parent.glob("*")) if path.is_dir()]


def _part(kind: Kind, found: Sequence[Measured], reclaimable: Sequence[Measured] = ()) -> DiskPart:
    return DiskPart(
        kind=kind,
        about=ABOUT[kind],
        count=len(found),
        bytes=sum(one.bytes for one in found),
        reclaimable_bytes=sum(one.bytes for one in reclaimable),
        complete=all(one.complete for one in found),
    )
