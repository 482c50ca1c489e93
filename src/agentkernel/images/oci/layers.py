"""The layers of a stored image as directories: unpacked once, complete or absent, shared by all.

A layer is unpacked into a temporary directory and renamed when all of it is there and on disk
(images/cache.py), so whoever is killed at whatever moment leaves either a layer or something that
nobody uses and the next builder removes. Who unpacks a layer holds a lock on its blob: others wait
for that one instead of doing the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from agentkernel import faults
from agentkernel.errors import AgentKernelError, ImageInvalidError
from agentkernel.images import cache
from agentkernel.images.cache import Progress
from agentkernel.images.oci.model import Descriptor, decode_config, decode_manifest
from agentkernel.images.oci.progress import PullProgress, Report, State
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.images.oci.work import LayerWorker

# More at once only make a disk seek.
_AT_ONCE = 2


def ensure_layers(
    store: ImageStore,
    image: StoredImage,
    worker: LayerWorker,
    progress: Progress | None = None,
    *,
    report: Report | None = None,
) -> list[str]:
    """Host paths, topmost first. Blocks while layers are unpacked. `progress` is told in sentences,
    `report` of each layer. Raises ImageInvalidError for layers that are missing, damaged or
    hostile, and what LayerWorker raises."""
    names = [worker.layer_name(diff_id) for diff_id in image.config.rootfs.diff_ids]
    found = [cache.find(store.directory, name) for name in names]
    missing = [number for number, path in enumerate(found) if path is None]
    if missing:
        if progress is not None:
            count = f"{len(missing)} layer{'s' if len(missing) > 1 else ''}"
            progress(f"unpacking {count} of {_shown(image)}")
        with ThreadPoolExecutor(_AT_ONCE, "layers") as pool:
            made = pool.map(lambda number: _layer(store, image, worker, number, report), missing)
            for number, path in zip(missing, made, strict=True):
                found[number] = path
    for number in set(range(len(found))) - set(missing):
        _tell(report, image.manifest.layers[number], "ready")
    return [path for path in reversed(found) if path is not None]


def stored_layers(store: ImageStore, worker: LayerWorker, digests: set[str]) -> set[str]:
    """Host paths of the layers of every image that has a name, and of `digests` (manifests'),
    whether they are unpacked or not: pruning keeps them."""
    diff_ids: set[str] = set()
    for digest in {*(entry.digest for entry in store.names()), *digests}:
        with suppress(ImageInvalidError):
            manifest = decode_manifest(store.read_document(digest))
            config = decode_config(store.read_document(manifest.config.digest), manifest)
            diff_ids.update(config.rootfs.diff_ids)
    directory = cache.layers_dir(store.directory)
    return {os.path.join(directory, worker.layer_name(diff_id)) for diff_id in diff_ids}


def _layer(
    store: ImageStore,
    image: StoredImage,
    worker: LayerWorker,
    number: int,
    report: Report | None,
) -> str:
    layer, diff_id = image.manifest.layers[number], image.config.rootfs.diff_ids[number]
    blob = store.blob_path(layer.digest)

    def count(done: int) -> None:
        _tell(report, layer, "unpacking", done)

    def build(target: str) -> None:
        faults.point("layer.begun")
        count(0)
        worker.unpack(str(blob), diff_id, target, progress=count)
        faults.point("layer.unpacked")

    try:
        with _alone(str(blob), image):
            path = cache.layer(
                store.directory,
                worker.layer_name(diff_id),
                build,
                flush=False,
                remove=worker.remove,
            )
        faults.point("layer.done")
    except OSError as error:
        if isinstance(error, AgentKernelError):
            raise
        raise cache.not_written(error, cache.layers_dir(store.directory)) from error
    _tell(report, layer, "ready")
    return path


def _tell(report: Report | None, layer: Descriptor, state: State, done: int | None = None) -> None:
    if report is not None:
        report(PullProgress(layer.digest, state, layer.size if done is None else done, layer.size))


@contextmanager
def _alone(blob: str, image: StoredImage) -> Iterator[None]:
    """In the block nobody else unpacks this blob. The kernel lets go of it for whoever dies."""
    try:
        fd = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ImageInvalidError(
            f"a layer of {_shown(image)} is missing: {os.path.basename(blob)}",
            hint=f"pull it again: agentkernel image pull {_shown(image)}",
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _shown(image: StoredImage) -> str:
    return image.names[0] if image.names else image.digest
