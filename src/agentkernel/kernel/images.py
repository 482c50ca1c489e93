"""The images of this installation: `kernel.images`.

They belong to nobody: every owner sees the same ones, and content is kept once for all. What must
hold: nothing goes that a sandbox was made from, or is about to be made from; an image gets its name
when all of it is here, verified and unpacked, so that a name is as good as its image.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from builtins import list as List
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentkernel import faults
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.local.shortages import host_errors
from agentkernel.config.finding import user_file
from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.images.model import image_kind
from agentkernel.images.oci.archives.reading import ArchiveImage, adopt_image, read_images
from agentkernel.images.oci.archives.staging import Staging
from agentkernel.images.oci.archives.writing import Format, Saved, write_images
from agentkernel.images.oci.layers import ensure_layers
from agentkernel.images.oci.model import ContainerConfig, Platform, this_platform
from agentkernel.images.oci.progress import Report
from agentkernel.images.oci.reach import public_only
from agentkernel.images.oci.reference import LOCAL, Reference, is_digest, parse_reference
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.images.oci.work import LayerWorker
from agentkernel.kernel import image_care as care
from agentkernel.kernel.image_fetching import Fetchings, Sentences
from agentkernel.kernel.image_holds import ImageHolds
from agentkernel.kernel.image_views import (
    ImageDetail,
    ImageInfo,
    ImageRemoved,
    ImagesPruned,
    detail_of,
    familiar,
    info_of,
)
from agentkernel.kernel.store import NewEvent, SandboxRecord, Store
from agentkernel.kernel.threads import block_in_threads, in_thread

if TYPE_CHECKING:
    from agentkernel.images.oci.registry.reaching import Reaching
    from agentkernel.images.oci.registry.settings import RegistrySettings

Pull = Literal["missing", "always", "never"]
MAX_SAVED = 64
# So much of an archive goes to the disk's thread at once.
_BATCH = 1 << 20


class Images:
    """See the module. `name` in its calls is a name, an id, the beginning of one, or a digest."""

    def __init__(self, state_dir: Path, rows: Store, trail: Trail, worker: LayerWorker) -> None:
        self.store = ImageStore(state_dir / "images")
        self.trail = trail
        self._state_dir = state_dir
        self._rows = rows
        self._worker = worker
        self._fetchings = Fetchings()
        self._reaching: Reaching | None = None
        self._holds = ImageHolds()
        # Held while it is decided which content is used, and while what is not used goes.
        self._deciding = asyncio.Lock()

    async def close(self) -> None:
        """Ends what is being fetched; it goes on where it was when it is asked for again."""
        await self._fetchings.close()

    # -- for sandboxes ---------------------------------------------------------------------------

    async def ready(
        self,
        reference: str,
        *,
        pull: Pull = "missing",
        progress: Callable[[str], None] | None = None,
    ) -> str:
        """What a sandbox is made from: a name becomes that name with the digest it means now, once
        all of the image is here. `host` and directories stay as they are. It is held, see
        `image_holds`. Raises NotFoundError, RegistryError, ImageInvalidError, InvalidInputError."""
        if image_kind(reference) != "oci":
            return reference
        wanted = _meant(reference)
        if pull != "always" or wanted is None:
            async with self._deciding:
                digest = await in_thread(self.store.find_digest, reference)
                if digest is not None:
                    self._holds.hold(digest)
            if digest is not None:
                return await self._unpacked_for(wanted, digest, progress)
        if wanted is None or pull == "never":
            raise NotFoundError(
                f"no image {reference[:200]!r} is here",
                hint=f"fetch it: agentkernel image pull {reference[:200]}",
            )
        digest = await self._fetch(wanted, None, progress and Sentences(wanted.familiar, progress))
        async with self._deciding:
            if not await in_thread(self.store.has_blob, digest):
                raise ConflictError(f"{wanted.familiar} was removed meanwhile", hint="try again")
            self._holds.hold(digest)
        return str(wanted.pinned(digest))

    def release(self, image: str) -> None:
        """What `ready` gave is not needed, or has a row by now."""
        if image_kind(image) == "oci":
            self._holds.release(image.rpartition("@")[2])

    async def _unpacked_for(
        self, wanted: Reference | None, digest: str, progress: Callable[[str], None] | None
    ) -> str:
        """Preconditions: it is held."""
        image = await in_thread(self.store.image, digest)
        await in_thread(ensure_layers, self.store, image, self._worker, progress)
        if wanted is None or not (wanted.digest or wanted.name in image.names):
            # It was found by its id.
            wanted = parse_reference((*image.names, f"{LOCAL}/unnamed")[0])
        return str(wanted.pinned(digest))

    # -- from elsewhere --------------------------------------------------------------------------

    @audited("image.pull")
    async def pull(
        self, reference: str, *, platform: str | None = None, progress: Report | None = None
    ) -> ImageInfo:
        """Fetches an image, or what has changed of it. Callers who want the same at once share one
        download. Raises RegistryError, ImageInvalidError, InvalidInputError."""
        wanted = parse_reference(reference)
        if image_kind(reference) != "oci":
            raise InvalidInputError(f"{reference[:200]!r} is no image of a registry")
        self.trail.found(None, None)
        digest = await self._fetch(wanted, _platform(platform), progress)
        await self._tell("image.pulled", name=wanted.familiar, digest=digest)
        return await self._info(digest)

    async def _fetch(
        self, wanted: Reference, platform: Platform | None, progress: Report | None
    ) -> str:
        # Nobody joins a download that they could not have begun.
        near = not public_only.get()

        async def work(report: Report) -> str:
            # Only who pulls pays for loading what that needs.
            from agentkernel.images.oci.registry.pulling import pull

            async def prepare(digest: str) -> None:
                await self._unpack([digest], report)

            settings = await in_thread(_registry_settings)
            settings = dataclasses.replace(settings, public_only=not near)
            with host_errors("fetching an image"):
                pulled = await pull(
                    self.store,
                    wanted,
                    platform=platform,
                    progress=report,
                    settings=settings,
                    prepare=prepare,
                )
            return pulled.digest

        return await self._fetchings.fetch((wanted, platform, near), work, progress)

    async def in_reach(self, reference: str) -> bool:
        """Whether an image is here, or a registry has it that answers at once."""
        wanted = parse_reference(reference)
        if await in_thread(self.store.find_digest, reference) is not None:
            return True
        if wanted.registry == LOCAL:
            return False
        from agentkernel.images.oci.registry.reaching import Reaching

        if self._reaching is None:
            self._reaching = Reaching()
        settings = await in_thread(_registry_settings)
        # Who may not fetch it is not told whether it is there, either.
        settings = dataclasses.replace(settings, public_only=public_only.get())
        return await self._reaching.ask(wanted, settings)

    @audited("image.load")
    async def load(
        self,
        archive: AsyncIterable[bytes],
        *,
        name: str | None = None,
        platform: str | None = None,
        progress: Report | None = None,
        may_name: Callable[[str], None] | None = None,
    ) -> List[ImageInfo]:
        """The images of an archive, by their names there; `name` is for one that has one image.
        `may_name` raises for a name that is not the caller's to give. Raises ImageInvalidError,
        ResourceExhaustedError, InvalidInputError."""
        chosen = None if name is None else _new_name(name)
        machine = _platform(platform) or this_platform()
        self.trail.found(None, None)
        found: List[ArchiveImage] = []
        try:
            with host_errors("loading an archive"):
                async with self._adding(), block_in_threads(self.store.staging()) as directory:
                    found = await self._read(archive, Staging(directory), machine)
                    if chosen is not None and len(found) > 1:
                        raise InvalidInputError(
                            f"the archive has {len(found)} images, and one name is given",
                            hint="leave the name out: each has the names that the archive says",
                        )
                    if may_name is not None:
                        for given in [one for image in found for one in _names(image, chosen)]:
                            may_name(given)
                    for image in found:
                        await in_thread(adopt_image, self.store, image)
                    await self._unpack([image.digest for image in found], progress)
                    for image in found:
                        for given in _names(image, chosen):
                            self.store.tag(given, image.digest, source=image.source)
                    faults.point("image.named")
        except BaseException:
            await asyncio.shield(self._take_back(found))
            raise
        await self._tell("image.loaded", digests=[image.digest for image in found])
        return [await self._info(image.digest) for image in found]

    async def _take_back(self, images: Sequence[ArchiveImage]) -> None:
        """What came of images that got no name; what somebody else needs by now stays."""
        blobs = {digest for image in images for digest in (image.digest, *image.layers)}
        blobs |= {image.manifest.config.digest for image in images} | {i.source for i in images}
        if blobs:
            async with self.deciding() as in_use:
                await self._without(blobs, [], in_use)

    async def _read(
        self, archive: AsyncIterable[bytes], files: Staging, machine: Platform
    ) -> List[ArchiveImage]:
        """Many small pieces go to the disk's thread at once."""
        gathered = bytearray()
        try:
            async for piece in archive:
                gathered += piece
                if len(gathered) >= _BATCH:
                    await in_thread(files.feed, bytes(gathered))
                    gathered.clear()
            await in_thread(files.feed, bytes(gathered))
            await in_thread(files.finish)
            faults.point("image.staged")
            return await in_thread(read_images, files, machine)
        finally:
            files.close()

    @audited("image.import")
    async def import_directory(
        self,
        directory: str,
        name: str,
        *,
        config: ContainerConfig | None = None,
        progress: Report | None = None,
    ) -> ImageInfo:
        """A directory of this machine with a root file system, as an image of one layer. Raises
        InvalidInputError, HostError, ResourceExhaustedError."""
        from agentkernel.kernel.image_importing import import_directory

        given = _new_name(name)
        self.trail.found(None, None)
        with host_errors("importing a directory"):
            async with self._adding():
                digest = await in_thread(
                    import_directory, self.store, self._worker, directory, config, self._state_dir
                )
                await self._unpack([digest], progress)
                self.store.tag(given, digest)
        await self._tell("image.imported", name=familiar(given), digest=digest)
        return await self._info(digest)

    async def _unpack(self, digests: Sequence[str], report: Report | None) -> None:
        """Makes all layers of these ready for sandboxes. Preconditions: nobody may remove."""
        faults.point("image.fetched")
        for digest in digests:
            image = await in_thread(self.store.image, digest)
            await in_thread(ensure_layers, self.store, image, self._worker, report=report)
        faults.point("image.unpacked")

    # -- what is here ----------------------------------------------------------------------------

    async def list(self, *, owner: str | None = None) -> List[ImageInfo]:
        """By name; last those that only sandboxes know."""
        users = await self._users(owner)

        def look() -> List[ImageInfo]:
            found = {image.digest: image for image in self.store.images()}
            for digest in users:
                if digest not in found and self.store.find_digest(digest):
                    found[digest] = self.store.image(digest)
            ordered = sorted(found.values(), key=lambda image: (not image.names, image.names))
            return [info_of(image, users.get(image.digest, ())) for image in ordered]

        return await in_thread(look)

    async def inspect(self, name: str, *, owner: str | None = None) -> ImageDetail:
        """All that is known of an image. Raises NotFoundError."""
        users = await self._users(owner)

        def look() -> ImageDetail:
            image = self.store.find(name)
            return detail_of(image, self.store, self._worker, users.get(image.digest, ()))

        return await in_thread(look)

    @audited("image.save")
    @contextlib.asynccontextmanager
    async def save(
        self, names: Sequence[str], *, format: Format = "oci"
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An archive of images, in pieces; the same images give the same bytes. Raises
        NotFoundError."""
        if not 0 < len(names) <= MAX_SAVED:
            raise InvalidInputError(f"an archive has 1 to {MAX_SAVED} images")
        self.trail.found(None, None)
        pieces = await in_thread(lambda: write_images(self.store, self._saved(names), format))

        async def follow() -> AsyncIterator[bytes]:
            while piece := await in_thread(next, pieces, b""):
                yield piece

        yield follow()

    def _saved(self, names: Sequence[str]) -> List[Saved]:
        """Each image once, with the names that it was asked for by, or all that it has."""
        chosen: dict[str, tuple[StoredImage, dict[str, None]]] = {}
        for name in names:
            image = self.store.find(name)
            wanted = _meant(name)
            meant = (wanted.name,) if wanted and wanted.name in image.names else image.names
            chosen.setdefault(image.digest, (image, {}))[1].update(dict.fromkeys(meant))
        return [Saved(image, tuple(meant)) for image, meant in chosen.values()]

    # -- names and care --------------------------------------------------------------------------

    @audited("image.tag")
    async def tag(self, name: str, new_name: str) -> ImageInfo:
        """One more name for an image that is here; another image that has it loses it."""
        given = _new_name(new_name)
        self.trail.found(None, None)
        async with self._adding():
            image = await in_thread(self.store.find, name)
            self.store.tag(given, image.digest)
        await self._tell("image.tagged", name=familiar(given), digest=image.digest)
        return await self._info(image.digest)

    @audited("image.remove")
    async def remove(
        self, name: str, *, force: bool = False, owner: str | None = None
    ) -> ImageRemoved:
        """Takes a name away, and with the last one the content, unless a sandbox was made from it:
        then it is refused. `force`: the names of an id go all at once, and the last one also where
        sandboxes stand on it; what they need stays as long as they do."""
        self.trail.found(None, None)
        users = await self._users(owner)
        async with self.deciding() as in_use:
            image, names = await in_thread(self._doomed, name)
            last = set(names) >= set(image.names)
            if len(names) > 1 and not force:
                shown = ", ".join(familiar(one) for one in names)
                raise ConflictError(
                    f"the image has {len(names)} names: {shown}",
                    hint="remove it by one of them, or all with --force",
                )
            if last and image.digest in users and not force:
                raise ConflictError(
                    f"sandboxes were made from it: {', '.join(users[image.digest])}",
                    hint="remove them first; --force takes the name away and keeps what they need",
                    sandboxes=users[image.digest],
                )
            parts = await in_thread(care.parts_of, self.store, image)
            for one in names:
                await in_thread(self.store.untag, one)
            freed = await self._without(parts, [image], in_use) if last else care.NOTHING
        removed = ImageRemoved(
            untagged=[familiar(one) for one in names],
            deleted=[image.digest] if image.digest in freed.blobs else [],
            freed_bytes=freed.bytes,
        )
        await self._tell("image.removed", names=removed.untagged, digest=image.digest)
        return removed

    def _doomed(self, name: str) -> tuple[StoredImage, List[str]]:
        """The image, and which of its names go: the one that was said, or all of an id."""
        image = self.store.find(name)
        wanted = _meant(name)
        for said in (wanted.name, str(wanted)) if wanted is not None else ():
            if said in image.names:
                return image, [said]
        return image, list(image.names)

    async def _without(
        self, blobs: set[str], images: List[StoredImage], in_use: set[str]
    ) -> care.Freed:
        """Removes what of these nobody needs; while somebody adds an image that is nothing, and
        left to a later prune. Preconditions: within `deciding`."""
        with contextlib.suppress(ConflictError):
            return await in_thread(
                care.remove_unused, self.store, self._worker, self._state_dir, in_use, blobs, images
            )
        return care.NOTHING

    @contextlib.asynccontextmanager
    async def deciding(self) -> AsyncIterator[set[str]]:
        """The manifests that sandboxes were made from, or are being made from; in the block there
        come no others, so that what nobody needs can go."""
        async with self._deciding:
            rows = await self._rows.all_sandboxes()
            yield self._holds.digests() | {found for row in rows if (found := _digest_of(row))}

    @audited("image.prune")
    async def prune(self, *, all: bool = False) -> ImagesPruned:
        """Removes content without a name that no sandbox needs, downloads that nobody goes on with
        and unpacked layers that no image has. `all`: names that no sandbox uses, too. Raises
        ConflictError while an image is being added."""
        self.trail.found(None, None)
        async with self.deciding() as in_use:
            pruned = await in_thread(
                care.prune, self.store, self._worker, self._state_dir, in_use, all
            )
        await self._tell("image.pruned", untagged=pruned.untagged, freed_bytes=pruned.freed_bytes)
        return pruned

    async def unused(self) -> care.Unused:
        """What `prune` would remove."""
        async with self.deciding() as in_use:
            return await in_thread(
                care.find_unused, self.store, self._worker, self._state_dir, in_use
            )

    # -- inside ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _adding(self) -> AsyncIterator[None]:
        async with block_in_threads(self.store.adding()):
            yield

    async def _users(self, owner: str | None) -> Mapping[str, List[str]]:
        """The sandboxes of each image, by their names for their owner and by ids for others."""
        users: dict[str, List[str]] = {}
        for row in await self._rows.all_sandboxes():
            if digest := _digest_of(row):
                name = row.name if owner is None or row.owner == str(owner) else None
                users.setdefault(digest, []).append(name or row.id)
        return users

    async def _info(self, digest: str) -> ImageInfo:
        """For whoever has made it: sandboxes of others by their ids."""
        users = await self._users("")
        image = await in_thread(self.store.image, digest)
        return info_of(image, users.get(digest, ()))

    async def _tell(self, kind: str, **body: Any) -> None:
        await self._rows.append_events([NewEvent(kind=kind, body=body)])


def _digest_of(row: SandboxRecord) -> str | None:
    """What a sandbox was made from, if that was an image."""
    image = str(row.blueprint.get("image", ""))
    digest = image.rpartition("@")[2]
    return digest if image_kind(image) == "oci" and is_digest(digest) else None


def _meant(text: str) -> Reference | None:
    """None: an id or a digest, which means something only if it is here."""
    if is_digest(text):
        return None
    return parse_reference(text)


def _new_name(text: str) -> str:
    reference = parse_reference(text)
    if image_kind(text) != "oci" or reference.digest:
        raise InvalidInputError(
            f"{text[:200]!r} can't be a new name of an image", hint="write NAME[:TAG]"
        )
    return reference.name


def _names(image: ArchiveImage, chosen: str | None) -> List[str]:
    """An image that an archive gives no name gets one all the same, or nobody could keep it."""
    if chosen is not None:
        return [chosen]
    return image.names or [f"{LOCAL}/unnamed:{image.digest.removeprefix('sha256:')[:12]}"]


def _registry_settings() -> RegistrySettings:
    """As the user's config.toml says them now. Raises for a file that is wrong."""
    from agentkernel.config.reading import read_file
    from agentkernel.images.oci.registry.settings import RegistrySettings, registry_settings

    path = user_file()
    if not os.path.lexists(path):
        return RegistrySettings()
    return registry_settings(read_file(path, "user").values)


def _platform(text: str | None) -> Platform | None:
    if text is None:
        return None
    parts = text.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise InvalidInputError(
            f"{text[:100]!r} is no platform", hint="write OS/ARCHITECTURE, such as linux/arm64"
        )
    return Platform(os=parts[0], architecture=parts[1], variant="".join(parts[2:]))
