"""A layer's archive as it is made: tar, gzip, and the digests of both."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentkernel.images.building.tree import Entry
from agentkernel.images.oci.model import OCI_LAYER, Descriptor
from agentkernel.images.oci.store import ImageStore, NewBlob

# Speed before size: the layer stays on this machine, as a rule.
_LEVEL = 4
_GZIP = 31
_BLOCK = 512
_TYPES = {"directory": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.SYMTYPE}


@dataclass(frozen=True)
class Layer:
    """`diff_id`: the digest of what the blob holds, uncompressed."""

    blob: Descriptor
    diff_id: str


class LayerFile(io.RawIOBase):
    """A tar is written to it; `finish` makes it a layer of the store."""

    def __init__(self, blob: NewBlob) -> None:
        self._blob = blob
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._outside = hashlib.sha256()
        self._inside = hashlib.sha256()
        self.written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._inside.update(view)
        self.written += len(view)
        self._put(self._compressor.compress(view))
        return len(view)

    def finish(self) -> Layer:
        self._put(self._compressor.flush())
        digest = f"sha256:{self._outside.hexdigest()}"
        size = self._blob.size()
        self._blob.keep(digest)
        blob = Descriptor(media_type=f"{OCI_LAYER}+gzip", digest=digest, size=size)
        return Layer(blob, f"sha256:{self._inside.hexdigest()}")

    def _put(self, data: bytes) -> None:
        if data:
            self._outside.update(data)
            self._blob.write(data)


@contextlib.contextmanager
def new_layer(store: ImageStore) -> Iterator[LayerFile]:
    """Nothing is left of it unless it was finished."""
    with store.new_blob() as blob:
        yield LayerFile(blob)


def write_entry(file: LayerFile, path: str, entry: Entry, pieces: Iterable[bytes] = ()) -> None:
    """`pieces`: exactly as many bytes as the entry says."""
    info = tarfile.TarInfo(path.strip("/"))
    info.type = _TYPES[entry.kind]
    info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.uid, entry.gid, entry.mtime
    info.linkname = entry.link
    info.size = entry.size if entry.kind == "file" else 0
    file.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
    written = 0
    for piece in pieces:
        file.write(piece)
        written += len(piece)
    if written != info.size:
        raise ValueError(f"{path} has {written} bytes instead of {info.size}")
    file.write(bytes(-written % _BLOCK))


def write_end(file: LayerFile) -> None:
    file.write(bytes(2 * _BLOCK))
