"""Bytes of an archive, uncompressed: gzip, zstd or plain, as its first bytes say.

What comes out is as large as whoever made it liked: it is given in pieces, and whoever takes them
counts. A damaged stream, one that ends too early and one with something after its end are refused.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from agentkernel.errors import ImageInvalidError

READ_BYTES = 256 << 10
# The most that a piece may be.
PIECE_BYTES = 1 << 20

_FIRST_SHARE = 4 << 10
_ZEROS = re.compile(rb"\0*")

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
# Frames without content, of which a number may be: 0x184D2A50 to 0x184D2A5F.
ZSTD_SKIPPED = b"\x2a\x4d\x18"


class Member(Protocol):
    """One gzip member or zstd frame. `needs_input` is false while there is more to come of what it
    was given."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def uncompressed(file: BinaryIO, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The content in pieces of at most PIECE_BYTES. `progress` learns how many bytes of the file
    were read. Raises ImageInvalidError."""
    count = 0

    def read() -> bytes:
        nonlocal count
        data = file.read(READ_BYTES)
        count += len(data)
        if data and progress is not None:
            progress(count)
        return data

    first = read()
    if first.startswith(GZIP):
        return _members(first, read, GzipMember, zlib.error, "gzip")
    if first.startswith(ZSTD) or first[1:4] == ZSTD_SKIPPED:
        return _members(first, read, *zstd_members(), "zstd")
    return _plain(first, read)


def _plain(data: bytes, read: Callable[[], bytes]) -> Iterator[bytes]:
    while data:
        yield data
        data = read()


def _members(
    data: bytes,
    read: Callable[[], bytes],
    make: Callable[[], Member],
    failure: type[Exception],
    kind: str,
) -> Iterator[bytes]:
    """Members one after the other are one stream, as for gzip and zstd themselves. What a member
    leaves over is copied: so each is given little at first, as somebody may send a million."""
    at = 0
    try:
        while at < len(data):
            member, share = make(), _FIRST_SHARE
            while not member.eof:
                given = b""
                if member.needs_input:
                    if at == len(data):
                        data, at = read(), 0
                    if not data:
                        raise ImageInvalidError(
                            f"the {kind} stream ends too early", reason="stream"
                        )
                    given = data[at : at + share]
                    at += len(given)
                    share = min(2 * share, READ_BYTES)
                if piece := member.decompress(given, PIECE_BYTES):
                    yield piece
            at -= len(member.unused_data)
            while True:
                if kind == "gzip":  # tar and tapes pad with zeros
                    at = _after_zeros(data, at)
                if at < len(data) or not data:
                    break
                data, at = read(), 0
    except failure as error:
        words = f"the {kind} stream is damaged: {error}"
        raise ImageInvalidError(words, reason="stream") from None


def _after_zeros(data: bytes, at: int) -> int:
    match = _ZEROS.match(data, at)
    return match.end() if match else at


class GzipMember:
    """zlib's object with the face that lzma, bz2 and zstd have."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail and not self._full

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._inner.decompress(self._inner.unconsumed_tail or data, max_length)
        # zlib may hold more than it gave although all input is used up.
        self._full = len(piece) == max_length
        return piece


def zstd_members() -> tuple[Callable[[], Member], type[Exception]]:
    """What makes one, and what it raises."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor, zstd.ZstdError
