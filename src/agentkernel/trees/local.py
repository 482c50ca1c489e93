"""Directories of this machine, unpacked from a sandbox and packed for one.

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
from typing import Final

from agentkernel.errors import GuestProtocolError, InvalidInputError
from agentkernel.ids import new_id
from agentkernel.trees.entries import (
    FileType,
    Part,
    TreeCount,
    TreeEntry,
    TreeSummary,
    is_clean,
    to_bytes,
    to_text,
)
from agentkernel.trees.ignoring import Ignore

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK: Final = 1 << 18
_DEPTH_MAX: Final = 200
_MTIME_MS_MAX: Final = 253_402_300_799_000  # the year 9999


class TreeUnpacker:
    """Makes the files of a sandbox's tree in `directory`, which has to exist.

    A file has its own name only when it is whole; what had that name before is there until then.
    """

    def __init__(self, directory: str | os.PathLike[str], **limits: int) -> None:
        self._count = TreeCount(**limits)
        self._refused = 0
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent = os.dup(self._root)
        self._parent_parts: list[bytes] = []
        self._part_name = f".{new_id()}.part".encode()
        self._file = -1
        self._name = b""
        self._left = 0
        self._mtime_ms = 0

    def feed(self, part: Part) -> None:
        if isinstance(part, bytes):
            self._content(part)
        else:
            self._entry(part)

    def summary(self, skipped: int = 0) -> TreeSummary:
        return TreeSummary(self._count.files, self._count.bytes, skipped, self._refused)

    def finish(self) -> None:
        """Says that no more comes."""
        if self._file >= 0:
            raise GuestProtocolError("the tree ends inside a file")

    def close(self) -> None:
        """Of a file that is not complete nothing is left. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            os.unlink(self._part_name, dir_fd=self._parent)
        if self._root >= 0:
            os.close(self._parent)
            os.close(self._root)
            self._root = -1

    def _entry(self, entry: TreeEntry) -> None:
        if self._file >= 0 or not is_clean(entry.path):
            raise GuestProtocolError("the sandbox sent a path that leads out of its tree")
        *parents, name = to_bytes(entry.path).split(b"/")
        self._count.add(entry.size if entry.type is FileType.FILE else 0)
        self._go_to(parents)
        if entry.type is FileType.DIRECTORY:
            self._directory(name, entry.mode)
        elif entry.type is FileType.LINK:
            self._link(to_bytes(entry.target), name, len(parents))
        elif entry.type is FileType.FILE:
            self._begin(entry, name)
        else:
            raise GuestProtocolError("the sandbox sent a tree with a special file")

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

    def _directory(self, name: bytes, mode: int) -> None:
        try:
            os.mkdir(name, 0o700 | mode & 0o777, dir_fd=self._parent)
        except FileExistsError:
            os.close(os.open(name, _DIRECTORY, dir_fd=self._parent))  # nothing else will do

    def _link(self, target: bytes, name: bytes, depth: int) -> None:
        if not leads_inside(target, depth):
            self._refused += 1
            return
        try:
            os.symlink(target, name, dir_fd=self._parent)
        except FileExistsError:
            os.symlink(target, self._part_name, dir_fd=self._parent)
            self._replace(name)

    def _begin(self, entry: TreeEntry, name: bytes) -> None:
        # Bits that give rights to others than the owner of the file stay behind.
        mode = entry.mode & 0o777
        self._file = os.open(self._part_name, _NEW_FILE, mode, dir_fd=self._parent)
        self._name, self._left, self._mtime_ms = name, entry.size, entry.mtime_ms
        if not self._left:
            self._complete()

    def _content(self, data: bytes) -> None:
        if len(data) > self._left or self._file < 0:
            raise GuestProtocolError("the sandbox sent more content than it announced")
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
        self._replace(self._name)

    def _replace(self, name: bytes) -> None:
        try:
            os.rename(self._part_name, name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._part_name, dir_fd=self._parent)
            raise


def leads_inside(target: bytes, depth: int) -> bool:
    """Whether a link with this target, in a directory `depth` below the root, stays inside."""
    parts = target.split(b"/")
    up = 0
    while up < len(parts) and parts[up] == b"..":
        up += 1
    return up <= depth and all(part not in (b"", b".", b"..") for part in parts[up:])


class TreePacker:
    """`parts` is the tree, `summary` is right when that is exhausted.

    Order is by name, links are sent as they are, what changes while it is read is padded or cut
    to the size that was announced. Ids stay behind: they are not the sandbox's. What `ignore`
    leaves out is not read.
    """

    def __init__(self, directory: str | os.PathLike[str], **limits: int) -> None:
        self._root = directory
        self.ignore: Ignore | None = None
        self._count = TreeCount(**limits)
        self._skipped = 0

    @property
    def summary(self) -> TreeSummary:
        return TreeSummary(self._count.files, self._count.bytes, self._skipped)

    def parts(self) -> Iterator[Part]:
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
                is_ignored = self.ignore is not None and self.ignore.leaves_out(to_text(path))
                if is_ignored and not stat.S_ISDIR(status.st_mode):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if (
                        is_ignored
                        and self.ignore is not None
                        and self.ignore.leaves_out_all_below(to_text(path))
                    ):
                        continue
                    if len(stack) >= _DEPTH_MAX:
                        raise InvalidInputError(
                            f"the directory is more than {_DEPTH_MAX} levels deep"
                        )
                    deeper = os.open(name, _DIRECTORY, dir_fd=at)
                    stack.append((deeper, _names(deeper), path + b"/"))
                    if is_ignored:
                        continue  # what is an exception in it brings its directories along
                    self._count.add(0)
                    yield _entry(path, FileType.DIRECTORY, status)
                elif stat.S_ISLNK(status.st_mode):
                    self._count.add(0)
                    target = to_text(os.readlink(name, dir_fd=at))
                    yield _entry(path, FileType.LINK, status, target=target)
                elif stat.S_ISREG(status.st_mode):
                    yield from self._file(at, name, path)
                else:
                    self._skipped += 1
        finally:
            for at, _, _ in stack:
                os.close(at)

    def _file(self, at: int, name: bytes, path: bytes) -> Iterator[Part]:
        fd = os.open(name, _OLD_FILE, dir_fd=at)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._skipped += 1
                return
            left = status.st_size
            self._count.add(left)
            yield _entry(path, FileType.FILE, status, size=left)
            while left:
                data = os.read(fd, min(left, _CHUNK)) or bytes(min(left, _CHUNK))
                left -= len(data)
                yield data
        finally:
            os.close(fd)


def _entry(
    path: bytes, kind: FileType, status: os.stat_result, size: int = 0, target: str = ""
) -> TreeEntry:
    return TreeEntry(
        to_text(path),
        kind,
        size=size,
        mode=status.st_mode & 0o777,
        mtime_ms=max(0, status.st_mtime_ns // 1_000_000),
        target=target,
    )


def _names(directory: int) -> Iterator[bytes]:
    return iter(sorted(os.fsencode(name) for name in os.listdir(directory)))
