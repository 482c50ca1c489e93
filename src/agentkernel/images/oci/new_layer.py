"""A layer of our own making: a tar, compressed on its way into the store."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final, cast

from agentkernel.images.oci.model import OCI_LAYER, Descriptor
from agentkernel.images.oci.store import ImageStore, NewBlob
from agentkernel.images.oci.work import Packed

# Layers are read more often than written, but somebody waits for the writing.
_LEVEL: Final = 4
_GZIP_FORMAT: Final = 31


def add_layer(store: ImageStore, pack: Callable[[BinaryIO], Packed]) -> tuple[Descriptor, str]:
    """The new blob, and the digest of the tar that `pack` has written. The same tar gives the same
    blob. Preconditions: `adding` is held."""
    with store.new_blob() as blob:
        output = _Compressing(blob)
        packed = pack(cast(BinaryIO, output))
        digest, size = output.end()
        blob.keep(digest)
    return Descriptor(f"{OCI_LAYER}+gzip", digest, size), packed.diff_id


class _Compressing(io.RawIOBase):
    """A file that is written once, from the beginning to the end."""

    def __init__(self, blob: NewBlob) -> None:
        self._blob = blob
        self._engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        self._hash = hashlib.sha256()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._put(self._engine.compress(data))
        return len(data)

    def end(self) -> tuple[str, int]:
        self._put(self._engine.flush())
        return f"sha256:{self._hash.hexdigest()}", self._size

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._blob.write(data)
