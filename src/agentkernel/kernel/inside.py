"""A sandbox's workspace as it is seen inside, where its files can't be read on the host.

Files in memory, or on a disk of the sandbox's own, are no directory here. So what differs from the
project is fetched through agentd and put together as a directory that looks like an overlay's
upper: then everything that reads uppers works. What has the same size, mode and time on both sides
counts as the same: a guest that sets a changed file's time back hides the change, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass, field

from agentkernel.errors import ResourceExhaustedError
from agentkernel.guest.file_types import FileEntry
from agentkernel.guest.files import GuestFiles
from agentkernel.trees.entries import FileType
from agentkernel.workspaces import beneath

MOST_ENTRIES = 300_000
MOST_BYTES = 256 << 20
_MOST_SECONDS = 120.0


@dataclass
class Inside:
    """Puts what differs from `project` together in `target`, an empty directory of ours. `place`:
    where the project is inside."""

    files: GuestFiles
    project: str
    target: str
    hidden: frozenset[str]
    place: str
    _modes: dict[str, int] = field(default_factory=dict)
    _entries: int = 0
    _bytes: int = 0

    async def fetch(self) -> None:
        """Raises ResourceExhaustedError for more than is fetched, and what calls of files raise."""
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                await self._fetch()
        except TimeoutError:
            raise _too_much(f"more than {_MOST_SECONDS:g} s of files") from None

    async def _fetch(self) -> None:
        root = os.open(self.project, beneath.DIRECTORY)
        try:
            pending = [("", True)]
            while pending:
                at, is_there = pending.pop()
                here = await asyncio.to_thread(_listing, root, at) if is_there else {}
                async for entry in self.files.iterate(f"{self.place}/{at}"):
                    self._entries += 1
                    if self._entries > MOST_ENTRIES:
                        raise _too_much(f"more than {MOST_ENTRIES} files")
                    path = f"{at}/{entry.name}" if at else entry.name
                    host = None if path in self.hidden else here.get(entry.name)
                    here.pop(entry.name, None)
                    if entry.type is FileType.DIRECTORY:
                        pending.append((path, self._directory(path, entry, host)))
                    elif not _is_same(root, path, entry, host):
                        await self._take(path, entry)
                for name in here:
                    path = f"{at}/{name}" if at else name
                    if path not in self.hidden:
                        os.mknod(self._made(path), stat.S_IFCHR, 0)
        finally:
            os.close(root)
        self._set_modes()

    def _set_modes(self) -> None:
        """Last, and from below: they may keep us out, too."""
        for path in sorted(self._modes, reverse=True):
            if os.path.isdir(f"{self.target}/{path}"):
                os.chmod(f"{self.target}/{path}", self._modes[path])

    def _directory(self, path: str, entry: FileEntry, host: os.stat_result | None) -> bool:
        """Whether there is one on the host, too."""
        mode = entry.mode & 0o777
        self._modes[path] = mode
        is_there = host is not None and stat.S_ISDIR(host.st_mode)
        if host is None or not is_there or host.st_mode & 0o777 != mode:
            os.makedirs(f"{self.target}/{path}", exist_ok=True)
        return is_there

    async def _take(self, path: str, entry: FileEntry) -> None:
        made = self._made(path)
        if entry.type is FileType.LINK:
            os.symlink(entry.target or "", made)
            return
        if entry.type is not FileType.FILE:
            os.mkfifo(made)
            return
        if self._bytes + entry.size > MOST_BYTES:
            raise _too_much(f"more than {MOST_BYTES >> 20} MiB of changed files")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(made, flags, 0o600)
        try:
            async for piece in self.files.read_stream(f"{self.place}/{path}"):
                self._bytes += len(piece)
                if self._bytes > MOST_BYTES:
                    raise _too_much(f"more than {MOST_BYTES >> 20} MiB of changed files")
                os.write(fd, piece)
            os.fchmod(fd, entry.mode & 0o777)
        finally:
            os.close(fd)

    def _made(self, path: str) -> str:
        """Where it is to be, in directories that are there."""
        os.makedirs(os.path.dirname(f"{self.target}/{path}"), exist_ok=True)
        return f"{self.target}/{path}"


def _listing(root: int, at: str) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    try:
        with beneath.opened_parent(root, f"{at}/." if at else ".") as (fd, _):
            for name in os.listdir(fd):
                found[name] = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        pass  # gone while we looked
    return found


def _is_same(root: int, path: str, entry: FileEntry, host: os.stat_result | None) -> bool:
    if host is None:
        return False
    if entry.type is FileType.LINK:
        try:
            return stat.S_ISLNK(host.st_mode) and beneath.link_target(root, path) == entry.target
        except OSError:
            return False
    if entry.type is not FileType.FILE:
        return stat.S_IFMT(host.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
    return stat.S_ISREG(host.st_mode) and (
        host.st_size,
        host.st_mode & 0o777,
        host.st_mtime_ns // 10**6,
    ) == (entry.size, entry.mode & 0o777, entry.mtime_ms)


def _too_much(words: str) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the workspace has {words} to look at from outside",
        hint="take files out with `agentkernel sandbox cp`, or make the sandbox without --disk and "
        "--ephemeral",
    )
