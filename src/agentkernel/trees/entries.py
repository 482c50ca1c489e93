"""The parts of a tree: entries, each file followed by its content in pieces of bytes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from agentkernel.errors import GuestFileTooLargeError

PATH_MAX: Final = 4096
NAME_MAX: Final = 255
DEFAULT_TREE_BYTES: Final = 4 << 30
DEFAULT_TREE_FILES: Final = 1_000_000
_CHUNK: Final = 1 << 18


class FileType(StrEnum):
    FILE = "file"
    DIRECTORY = "dir"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    CHARACTER_DEVICE = "char"
    BLOCK_DEVICE = "block"


class TreeEntry(NamedTuple):
    """`path` is relative to the tree's root, and clean; `type` is a file, directory or link.

    Names that are not UTF-8 hold surrogates, as in the os module.
    """

    path: str
    type: FileType
    size: int = 0
    mode: int = 0o644
    mtime_ms: int = 0
    uid: int = 0
    gid: int = 0
    target: str = ""


Part = TreeEntry | bytes


class TreeSummary(NamedTuple):
    """`skipped`: neither files nor directories nor links. `refused_links`: they led outside."""

    files: int
    bytes: int
    skipped: int = 0
    refused_links: int = 0


class TreeCount:
    """Counts entries and bytes of a tree against what its caller allows."""

    def __init__(self, *, limit_bytes: int, limit_files: int) -> None:
        self.files = self.bytes = 0
        self._limit_bytes = limit_bytes
        self._limit_files = limit_files

    def add(self, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self.files > self._limit_files:
            raise _too_large(f"{self._limit_files} files")
        if self.bytes > self._limit_bytes:
            raise _too_large(f"{self._limit_bytes} bytes")


def _too_large(what: str) -> GuestFileTooLargeError:
    return GuestFileTooLargeError(
        f"the tree has more than {what}", hint="raise its limit", errno_name="EFBIG"
    )


def to_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def to_text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def is_clean(path: str) -> bool:
    """Whether every component is a name, so that the path can't lead out of its tree."""
    return len(to_bytes(path)) < PATH_MAX and all(
        part not in ("", ".", "..") and "\0" not in part and len(to_bytes(part)) <= NAME_MAX
        for part in path.split("/")
    )


def below(prefix: str, path: str) -> str:
    return posixpath.join(prefix, path) if prefix else path


def in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about 256 KiB: small files are many small pieces."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= _CHUNK:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
