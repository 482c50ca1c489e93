"""Tar archives as entries: of layers that were unpacked before, and of local files for ADD.

Nothing is written by what is read here. What a header may cost is bounded; whoever reads bounds the
number of entries and bytes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from agentkernel.errors import ImageInvalidError
from agentkernel.images.building.tree import Entry

_META_BYTES = 1 << 20
_CHUNK = 1 << 18
_XZ_MEMORY = 128 << 20
_META = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)
DAMAGED = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class _BoundedInfo(tarfile.TarInfo):
    """Refuses headers whose text is longer than any that means something."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _META and self.size > _META_BYTES:
            raise tarfile.ReadError("a header is too long")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def compression_of(head: bytes) -> str:
    """By the first bytes; empty: none."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "")


def decompressed(file: BinaryIO) -> BinaryIO:
    """What a file holds, whether or not it is compressed."""
    kind = compression_of(file.read(6))
    file.seek(0)
    if kind == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if kind == "bzip2":
        return cast(BinaryIO, bz2.BZ2File(file))
    if kind == "xz":
        return cast(BinaryIO, _Xz(file))
    if kind == "zstd":
        return _zstd(file)
    return file


class _Xz:
    """As LZMAFile, but an archive does not say how much memory it takes to read it: that may be
    4 GiB. `xz -9` needs 65 MiB."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._engine: lzma.LZMADecompressor | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        while True:
            engine = self._engine
            if engine is None:
                # One stream may follow another; zeros between them are padding.
                while not (rest := self._rest.lstrip(b"\0")):
                    self._rest = self._file.read(_CHUNK)
                    if not self._rest:
                        return b""
                self._rest = rest
                engine = self._engine = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
            if engine.needs_input and not self._rest:
                self._rest = self._file.read(_CHUNK)
                if not self._rest:
                    raise EOFError("its compressed data end in the middle")
            data, self._rest = self._rest, b""
            piece = engine.decompress(data, size)
            if engine.eof:
                self._rest, self._engine = engine.unused_data, None
            if piece:
                return piece


def _zstd(file: BinaryIO) -> BinaryIO:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return cast(BinaryIO, zstd.ZstdFile(file))


def is_tar(file: BinaryIO) -> bool:
    """Whether ADD unpacks it: a tar archive, compressed or not. The file is where it was."""
    try:
        with opened(file) as archive:
            return archive.next() is not None
    except (ImageInvalidError, *DAMAGED):
        return False
    finally:
        file.seek(0)


@contextmanager
def opened(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    """To be read from its beginning to its end. Raises ImageInvalidError for what is damaged."""
    try:
        with tarfile.open(
            fileobj=decompressed(file), mode="r|", tarinfo=_BoundedInfo, bufsize=1 << 20
        ) as archive:
            yield archive
    except DAMAGED as exc:
        raise ImageInvalidError(f"the archive can't be read: {exc}") from None


def entry_of(member: tarfile.TarInfo) -> Entry:
    kinds = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link"}
    kind = "file" if member.isreg() else kinds.get(member.type, "other")
    return Entry(
        kind,  # type: ignore[arg-type]
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=max(0, int(member.mtime)),
        size=member.size if kind == "file" else 0,
        link=member.linkname if kind == "link" else "",
    )


def clean_name(name: str) -> str:
    """A member's path from the root, without dots; raises ImageInvalidError for one that leads out.
    Empty: the root itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ImageInvalidError(f"the archive has a path that leads out of it: {name[:200]!r}")
    return "/".join(parts)
