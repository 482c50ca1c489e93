"""Layers by what they were made from: a build that has been done is not done again.

images/build-cache/<key>.json   the layer that a step makes on top of certain others; there once
                                the layer is, and worth nothing when the layer's blob is gone
images/build-cache/lists/       what layers hold (`listing`)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from agentkernel.images.building.writing import Layer
from agentkernel.images.oci.model import Descriptor, Digest
from agentkernel.images.oci.store import ImageStore

VERSION = 1


class _Kept(msgspec.Struct, frozen=True):
    blob: Descriptor
    diff_id: Digest
    created: str


@dataclass(frozen=True)
class Cached:
    """`created`: when the layer was made, so that the same steps give the same image."""

    layer: Layer
    created: str


class BuildCache:
    """See the module. Files only: any number of processes may use it at once."""

    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self.directory = store.directory / "build-cache"
        self.lists = self.directory / "lists"

    def key(self, below: Sequence[str], *parts: object) -> str:
        """For a step on top of layers (their diff ids). `parts` need a stable `repr`."""
        told = repr((VERSION, list(below), parts)).encode("utf-8", "surrogateescape")
        return sha256(told).hexdigest()

    @staticmethod
    def hashed(parts: Sequence[object]) -> str:
        """A short name for many parts."""
        return sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()

    def find(self, key: str) -> Cached | None:
        path = self._path(key)
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        if not self._store.has_blob(kept.blob.digest):
            return None
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
        return Cached(Layer(kept.blob, kept.diff_id), kept.created)

    def keep(self, key: str, layer: Layer, created: str) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.directory / f".new-{os.urandom(6).hex()}"
        new.write_bytes(msgspec.json.encode(_Kept(layer.blob, layer.diff_id, created)))
        new.rename(self._path(key))

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.json"


def prune_build_cache(store: ImageStore, *, unused_seconds: float = 0.0) -> tuple[int, int]:
    """Forgets what no build has used for so long; how many entries that were, and how many bytes.
    Layers themselves go with the store's own unused blobs. Preconditions: `removing` is held."""
    cache = BuildCache(store)
    count = freed = 0
    now = time.time()
    for directory in (cache.directory, cache.lists):
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(directory):
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and (
                    now - status.st_mtime >= unused_seconds
                ):
                    os.unlink(entry.path)
                    count += entry.name.endswith(".json")
                    freed += status.st_blocks * 512
    return count, freed


def build_cache_bytes(store: ImageStore, unused_seconds: float = 0.0) -> int:
    """What it takes on the disk, without the layers: what no build has used for so long."""
    cache = BuildCache(store)
    total = 0
    now = time.time()
    for directory in (cache.directory, cache.lists):
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(directory):
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and (
                    now - status.st_mtime >= unused_seconds
                ):
                    total += status.st_blocks * 512
    return total
