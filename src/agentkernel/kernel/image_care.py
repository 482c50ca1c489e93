"""What of the images nobody needs, and how it goes.

Blocking: callers use threads. Preconditions of all that removes: `in_use` has the manifests of
every sandbox, and of those that are being made; nobody adds to it meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentkernel.backends.local.directory import layers_in_use
from agentkernel.images import cache
from agentkernel.images.oci.layers import stored_layers
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.images.oci.work import LayerWorker
from agentkernel.kernel.image_views import ImagesPruned, familiar, layer_path
from agentkernel.kernel.template_model import is_template

# What the names of unpacked layers of images begin with; others are made from this machine.
_LAYER = "oci"


@dataclass(frozen=True)
class Freed:
    """Digests of blobs and paths of layers that went, and what they took."""

    blobs: frozenset[str] = field(default_factory=frozenset)
    layers: frozenset[str] = field(default_factory=frozenset)
    bytes: int = 0


NOTHING = Freed()


def parts_of(store: ImageStore, image: StoredImage) -> set[str]:
    """Digests of the blobs that an image has, some of which others may share."""
    sources = {entry.source for entry in store.names() if entry.digest == image.digest}
    layers = {layer.digest for layer in image.manifest.layers}
    return {image.digest, image.id, *sources, *layers} - {""}


@dataclass(frozen=True)
class Unused:
    """What `prune` would remove: blobs and parts of downloads with their sizes, paths of layers."""

    blobs: dict[str, int]
    downloads: dict[str, int]
    layers: list[str]


def find_unused(
    store: ImageStore, worker: LayerWorker, state_dir: Path, in_use: Collection[str]
) -> Unused:
    kept = _layers_needed(store, worker, state_dir, in_use)
    downloads = {}
    for path in (store.directory / "partial").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            downloads[path.name] = path.stat().st_blocks * 512
    return Unused(
        blobs=store.unused_blobs(in_use),
        downloads=downloads,
        layers=[path for path in _layers(store, worker, None) if path not in kept],
    )


def is_of_an_image(layer: str) -> bool:
    """A layer that was unpacked, and not one made from this machine."""
    return os.path.basename(layer).startswith(_LAYER)


def remove_unused(
    store: ImageStore,
    worker: LayerWorker,
    state_dir: Path,
    in_use: Collection[str],
    blobs: Collection[str] | None,
    images: Sequence[StoredImage] | None,
) -> Freed:
    """Removes those of `blobs` and of the layers of `images` (None: of all) that nobody needs.
    Raises ConflictError while somebody adds an image."""
    with store.removing():
        unused = store.unused_blobs(in_use)
        if blobs is not None:
            unused = {digest: size for digest, size in unused.items() if digest in blobs}
        # Layers first: a name leads to its documents, and they to layers, as long as there are any.
        kept = _layers_needed(store, worker, state_dir, in_use)
        doomed = [path for path in _layers(store, worker, images) if path not in kept]
        freed = sum(unused.values())
        for path in doomed:
            freed += _size(path)
            cache.discard(store.directory, path, worker.remove)
        store.remove_blobs(unused)
    return Freed(frozenset(unused), frozenset(doomed), freed)


def prune(
    store: ImageStore,
    worker: LayerWorker,
    state_dir: Path,
    in_use: Collection[str],
    everything: bool,
) -> ImagesPruned:
    """`everything`: names that no sandbox uses, too, but those of templates, which are removed by
    themselves. Raises ConflictError as above."""
    with store.removing():
        partial = store.remove_partial()
        cache.remove_abandoned(cache_dir=store.directory, remove=worker.remove)
        gone = []
        for entry in store.names():
            if everything and entry.digest not in in_use and not is_template(entry.name):
                store.untag(entry.name)
                gone.append(familiar(entry.name))
    freed = remove_unused(store, worker, state_dir, in_use, None, None)
    return ImagesPruned(
        untagged=gone,
        blobs=len(freed.blobs),
        layers=len(freed.layers),
        freed_bytes=freed.bytes + partial,
    )


def _layers_needed(
    store: ImageStore, worker: LayerWorker, state_dir: Path, in_use: Collection[str]
) -> set[str]:
    """Also those of sandboxes without a row, which live as long as their process."""
    mounted = layers_in_use(state_dir / "runs", state_dir / "sandboxes")
    return {*mounted, *stored_layers(store, worker, set(in_use))}


def _layers(
    store: ImageStore, worker: LayerWorker, images: Sequence[StoredImage] | None
) -> list[str]:
    """Paths of layers that are there: of these images, or of all that ever were."""
    if images is not None:
        found = [
            layer_path(store, worker, diff_id)
            for image in images
            for diff_id in image.config.rootfs.diff_ids
        ]
        return [path for path in dict.fromkeys(found) if os.path.isdir(path)]
    directory = cache.layers_dir(store.directory)
    with contextlib.suppress(FileNotFoundError):
        return [
            entry.path
            for entry in os.scandir(directory)
            if entry.name.startswith(_LAYER) and entry.is_dir(follow_symlinks=False)
        ]
    return []


def _size(path: str) -> int:
    """As far as it can be seen: of ids that are not ours some may be closed to us."""
    total = 0
    seen: set[int] = set()
    for here, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(here, name))
                if found.st_nlink > 1:
                    if found.st_ino in seen:
                        continue
                    seen.add(found.st_ino)
                total += found.st_blocks * 512
    return total
