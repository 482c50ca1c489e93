"""Directories of the host, packed for a sandbox and unpacked from one.

Blocking; callers run it in threads. What must hold for `TreeUnpacker`, whatever a sandbox sends:
nothing is written outside its directory, no link is followed on the way, and no link it makes leads
outside once everything is there. Therefore every step is relative to an open directory, and a link
is made only if its target is `../` zero or more times within the tree, and from there names: such
links can't be composed into one that leads out.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from agentkernel.errors import GuestFileTooLargeError, GuestProtocolError, InvalidInputError
from agentkernel.guest.file_types import FileEntry, FileType, TreeSummary, to_bytes, tree_record

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 18
_DEPTH_MAX = 200
_MTIME_MS_MAX = 253_402_300_799_000  # the year 9999


def too_large(what: str) -> GuestFileTooLargeError:
    return GuestFileTooLargeError(f"the tree has more than {what}", errno_name="EFBIG")


class TreeUnpacker:
    """Makes the files of a sandbox's tree in `directory`, which has to exist."""

    def __init__(self, directory: Path, *, limit_bytes: int, limit_files: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_files = limit_files
        self._files = self._bytes = self._refused = 0
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent = os.dup(self._root)
        self._parent_parts: list[bytes] = []
        self._file = -1
        self._name = b""
        self._left = 0
        self._mtime_ms = 0

    def feed(self, part: FileEntry | bytes) -> None:
        if isinstance(part, bytes):
            self._content(part)
        else:
            self._entry(part)

    def summary(self, skipped: int) -> TreeSummary:
        return TreeSummary(
            files=self._files, bytes=self._bytes, skipped=skipped, refused_links=self._refused
        )

    def close(self) -> None:
        """Of a file that is not complete nothing is left."""
        if self._file >= 0:
            os.close(self._file)
            os.unlink(self._name, dir_fd=self._parent)
        os.close(self._parent)
        os.close(self._root)

    def _entry(self, entry: FileEntry) -> None:
        *parents, name = to_bytes(entry.name).split(b"/")
        self._files += 1
        if self._files > self._limit_files:
            raise too_large(f"{self._limit_files} files")
        self._go_to(parents)
        if entry.type is FileType.DIRECTORY:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700 | entry.mode & 0o777, dir_fd=self._parent)
        elif entry.type is FileType.LINK:
            self._link(to_bytes(entry.target or ""), name, len(parents))
        else:
            self._begin(entry, name)

    def _go_to(self, parts: list[bytes]) -> None:
        if parts == self._parent_parts:
            return
        at = os.dup(self._root)
        try:
            for part in parts:
                try:
                    deeper = os.open(part, _DIRECTORY, dir_fd=at)
                except FileNotFoundError:
                    os.mkdir(part, dir_fd=at)
                    deeper = os.open(part, _DIRECTORY, dir_fd=at)
                os.close(at)
                at = deeper
        except BaseException:
            os.close(at)
            raise
        os.close(self._parent)
        self._parent, self._parent_parts = at, parts

    def _link(self, target: bytes, name: bytes, depth: int) -> None:
        if not leads_inside(target, depth):
            self._refused += 1
            return
        try:
            os.symlink(target, name, dir_fd=self._parent)
        except FileExistsError:
            os.unlink(name, dir_fd=self._parent)
            os.symlink(target, name, dir_fd=self._parent)

    def _begin(self, entry: FileEntry, name: bytes) -> None:
        self._bytes += entry.size
        if self._bytes > self._limit_bytes:
            raise too_large(f"{self._limit_bytes} bytes")
        mode = entry.mode & 0o777
        try:
            self._file = os.open(name, _NEW_FILE, mode, dir_fd=self._parent)
        except FileExistsError:
            os.unlink(name, dir_fd=self._parent)
            self._file = os.open(name, _NEW_FILE, mode, dir_fd=self._parent)
        self._name, self._left, self._mtime_ms = name, entry.size, entry.mtime_ms
        if not self._left:
            self._complete()

    def _content(self, data: bytes) -> None:
        if len(data) > self._left:
            raise GuestProtocolError("agentd sent more content than it announced")
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._left -= len(data)
        if not self._left:
            self._complete()

    def _complete(self) -> None:
        mtime_ns = min(self._mtime_ms, _MTIME_MS_MAX) * 1_000_000
        os.utime(self._file, ns=(mtime_ns, mtime_ns))
        os.close(self._file)
        self._file = -1


def leads_inside(target: bytes, depth: int) -> bool:
    """Whether a link with this target, in a directory `depth` below the root, stays inside."""
    parts = target.split(b"/")
    up = 0
    while up < len(parts) and parts[up] == b"..":
        up += 1
    return up <= depth and all(part not in (b"", b".", b"..") for part in parts[up:])


class TreePacker:
    """Iterate it for the bytes of an upload; `summary` is right when it is exhausted.

    Order is by name, links are sent as they are, what changes while it is read is padded or cut
    to the size that was announced.
    """

    def __init__(self, directory: Path, *, limit_bytes: int, limit_files: int) -> None:
        self._root = directory
        self._limit_bytes = limit_bytes
        self._limit_files = limit_files
        self._files = self._bytes = self._skipped = 0

    @property
    def summary(self) -> TreeSummary:
        return TreeSummary(files=self._files, bytes=self._bytes, skipped=self._skipped)

    def chunks(self) -> Iterator[bytes]:
        """Pieces of about 256 KiB."""
        buffer = bytearray()
        for piece in self._pieces():
            buffer += piece
            if len(buffer) >= _CHUNK:
                yield bytes(buffer)
                buffer.clear()
        if buffer:
            yield bytes(buffer)

    def _pieces(self) -> Iterator[bytes]:
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Open directories from the root to where we are, each with the names still to come.
        stack = [(root, _names(root), b"")]
        try:
            while stack:
                at, names, prefix = stack[-1]
                name = next(names, None)
                if name is None:
                    os.close(at)
                    stack.pop()
                    continue
                path = prefix + name
                try:
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if len(stack) >= _DEPTH_MAX:
                        raise InvalidInputError(
                            f"the directory is more than {_DEPTH_MAX} levels deep"
                        )
                    deeper = os.open(name, _DIRECTORY, dir_fd=at)
                    stack.append((deeper, _names(deeper), path + b"/"))
                    self._count()
                    yield tree_record(path, status, FileType.DIRECTORY)
                elif stat.S_ISLNK(status.st_mode):
                    self._count()
                    target = os.readlink(name, dir_fd=at)
                    yield tree_record(path, status, FileType.LINK, target=target)
                elif stat.S_ISREG(status.st_mode):
                    yield from self._file(at, name, path)
                else:
                    self._skipped += 1
        finally:
            for at, _, _ in stack:
                os.close(at)

    def _count(self) -> None:
        self._files += 1
        if self._files > self._limit_files:
            raise too_large(f"{self._limit_files} files")

    def _file(self, at: int, name: bytes, path: bytes) -> Iterator[bytes]:
        fd = os.open(name, _OLD_FILE, dir_fd=at)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._skipped += 1
                return
            self._count()
            left = status.st_size
            self._bytes += left
            if self._bytes > self._limit_bytes:
                raise too_large(f"{self._limit_bytes} bytes")
            yield tree_record(path, status, FileType.FILE, size=left)
            while left:
                data = os.read(fd, min(left, _CHUNK)) or bytes(min(left, _CHUNK))
                left -= len(data)
                yield data
        finally:
            os.close(fd)


def _names(directory: int) -> Iterator[bytes]:
    return iter(sorted(os.fsencode(name) for name in os.listdir(directory)))
