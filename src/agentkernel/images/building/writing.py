"""Layers that are made from files: their archive, entry by entry."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from agentkernel.images.building.tree import Entry
from agentkernel.images.oci.model import Descriptor
from agentkernel.images.oci.new_layer import add_layer
from agentkernel.images.oci.store import ImageStore
from agentkernel.images.oci.work import Packed

_BLOCK = 512
_TYPES = {"directory": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.SYMTYPE}


@dataclass(frozen=True)
class Layer:
    """`diff_id`: the digest of what the blob holds, uncompressed."""

    blob: Descriptor
    diff_id: str


class LayerTar:
    """Writes an archive. `end` last."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._hash = hashlib.sha256()
        self._size = 0

    def add(self, path: str, entry: Entry, pieces: Iterable[bytes] = ()) -> None:
        """`pieces`: exactly as many bytes as the entry says."""
        info = tarfile.TarInfo(path.strip("/"))
        info.type = _TYPES[entry.kind]
        info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.gid, entry.mtime
        info.linkname = entry.link
        info.size = entry.size if entry.kind == "file" else 0
        self._put(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        written = 0
        for piece in pieces:
            self._put(piece)
            written += len(piece)
        if written != info.size:
            raise OSError(f"{path} has {written} bytes instead of {info.size}")
        self._put(bytes(-written % _BLOCK))

    def end(self) -> Packed:
        self._put(bytes(2 * _BLOCK))
        return Packed(f"sha256:{self._hash.hexdigest()}", self._size)

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._output.write(data)


def write_layer(store: ImageStore, fill: Callable[[LayerTar], None]) -> Layer:
    """Nothing is left of it where `fill` raises."""

    def pack(output: BinaryIO) -> Packed:
        tar = LayerTar(output)
        fill(tar)
        return tar.end()

    return Layer(*add_layer(store, pack))
