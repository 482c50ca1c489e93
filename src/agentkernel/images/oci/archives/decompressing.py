"""An archive that comes in pieces, uncompressed: gzip, zstd or plain, as its first bytes say.

As `compression` has it for files, for those who are given an archive piece by piece. A small input
may stand for an endless output, so no step gives more than a piece, and whoever takes them counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.compression import (
    GZIP,
    PIECE_BYTES,
    ZSTD,
    GzipMember,
    Member,
    zstd_members,
)

_OTHERS: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}


def compression_of(head: bytes) -> str:
    """`gzip`, `zstd` or nothing, by the first bytes of a file."""
    if head.startswith(GZIP):
        return "gzip"
    return "zstd" if head.startswith(ZSTD) else ""


class Decompressor:
    """`feed` gives what can be given so far, `finish` says that there are no more bytes. Raises
    ImageInvalidError for what is damaged or cut off."""

    def __init__(self) -> None:
        self._head = b""
        self._begun = False
        self._make: Callable[[], Member] | None = None
        self._failure: type[Exception] = zlib.error
        self._member: Member | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Exhaust it before the next call."""
        if not self._begun:
            self._head += data
            if len(self._head) < len(ZSTD):
                return
            data = self._begin()
        yield from self._pieces(data)

    def finish(self) -> Iterator[bytes]:
        if not self._begun:
            yield from self._pieces(self._begin())
        if self._member is not None:
            raise ImageInvalidError("the archive ends in the middle of its compressed data")

    def _begin(self) -> bytes:
        head, self._head, self._begun = self._head, b"", True
        for mark, name in _OTHERS.items():
            if head.startswith(mark):
                raise ImageInvalidError(
                    f"the archive is compressed by {name}",
                    hint="give it as plain tar, or compressed by gzip or zstd",
                )
        match compression_of(head):
            case "gzip":
                self._make = GzipMember
            case "zstd":
                self._make, self._failure = zstd_members()
        return head

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if self._make is None:
            if data:
                yield data
            return
        try:
            yield from self._uncompressed(data, self._make)
        except self._failure as error:
            raise ImageInvalidError(f"the archive's compressed data are damaged: {error}") from None

    def _uncompressed(self, data: bytes, make: Callable[[], Member]) -> Iterator[bytes]:
        """Members one after the other are one content; zeros behind them are padding."""
        while data or (self._member is not None and not self._member.needs_input):
            if self._member is None:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._member = make()
            piece = self._member.decompress(data, PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            if self._member.eof:
                data, self._member = self._member.unused_data, None
