"""An archive's bytes without their compression, a piece at a time: gzip, zstd or none.

Its first bytes tell which. A small input may stand for an endless output, so no call gives more
than a piece, and whoever takes them counts.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final

from agentkernel.errors import ImageInvalidError

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
_OTHERS: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
_PIECE: Final = 1 << 20
_GZIP_FORMAT: Final = 31


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
        self._kind: str | None = None
        self._stream: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Exhaust it before the next call."""
        if self._kind is None:
            self._head += data
            if len(self._head) < len(ZSTD):
                return
            data = self._begin()
        yield from self._pieces(data)

    def finish(self) -> Iterator[bytes]:
        if self._kind is None:
            yield from self._pieces(self._begin())
        if self._kind and self._stream is not None:
            raise ImageInvalidError("the archive ends in the middle of its compressed data")

    def _begin(self) -> bytes:
        head, self._head = self._head, b""
        for mark, name in _OTHERS.items():
            if head.startswith(mark):
                raise ImageInvalidError(
                    f"the archive is compressed by {name}",
                    hint="give it as plain tar, or compressed by gzip or zstd",
                )
        self._kind = compression_of(head)
        return head

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if not self._kind:
            if data:
                yield data
            return
        try:
            yield from self._gunzip(data) if self._kind == "gzip" else self._unzstd(data)
        except (zlib.error, _zstd_error()) as error:
            raise ImageInvalidError(f"the archive's compressed data are damaged: {error}") from None

    def _gunzip(self, data: bytes) -> Iterator[bytes]:
        """A file may have several members one after the other; they are one content."""
        while data:
            if self._stream is None:
                self._stream = zlib.decompressobj(_GZIP_FORMAT)
            if piece := self._stream.decompress(data, _PIECE):
                yield piece
            if self._stream.eof:
                data, self._stream = self._stream.unused_data.lstrip(b"\0"), None
            else:
                data = self._stream.unconsumed_tail

    def _unzstd(self, data: bytes) -> Iterator[bytes]:
        while data or (self._stream is not None and not self._stream.needs_input):
            if self._stream is None:
                self._stream = _zstd().ZstdDecompressor()
            if piece := self._stream.decompress(data, _PIECE):
                yield piece
            if self._stream.eof:
                data, self._stream = self._stream.unused_data, None
            else:
                data = b""


def _zstd() -> Any:
    """In the standard library from 3.14 on."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _zstd_error() -> type[Exception]:
    error: type[Exception] = _zstd().ZstdError
    return error
