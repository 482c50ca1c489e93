"""Writes down how a project is when a sandbox gets it, so that later changes of both can be merged.

    python -m agentkernel.workspaces.recording PROJECT BASE BEGAN_NS

A process of its own, beside the sandbox that runs already: a big project takes a while. What git
has is not copied: its index says which object a file was, if the file is as the index knows it. Of
everything else small texts are copied, as many as there is room for. What changed after BEGAN_NS is
not how it was, and left out. `base.py` reads what this makes:

    BASE/index      git's index
    BASE/copies/N   files
    BASE/manifest   JSON, last: which is which
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator

from agentkernel.errors import AgentKernelError
from agentkernel.workspaces import git_index
from agentkernel.workspaces.git import Git, GitPlace, find_git, has_git
from agentkernel.workspaces.secret_files import is_secret_name

MOST_OF_ONE = 1 << 20
MOST_OF_ALL = 64 << 20
MOST_COPIES = 20_000
_MOST_LOOKED_AT = 200_000
_CLONE = 0x40049409  # FICLONE: the same blocks, until one of the two is written
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def record(project: str, base: str, began_ns: int) -> None:
    """`base` is an empty directory. Raises OSError."""
    recorder = Recorder(project, base, began_ns)
    recorder.record()


class Recorder:
    """See the module."""

    def __init__(self, project: str, base: str, began_ns: int) -> None:
        self._project, self._base, self._began_ns = project, base, began_ns
        self._left = MOST_OF_ALL
        self._files: dict[str, list[int | str | None]] = {}
        self._copies = 0
        self._can_clone = True

    def record(self) -> None:
        os.mkdir(f"{self._base}/copies", 0o700)
        place = find_git(self._project)
        prefix = ""
        tracked: dict[bytes, git_index.Entry] | None = None
        index_ns = 0
        if place is not None:
            prefix = os.path.relpath(self._project, place.top)
            prefix = "" if prefix == "." else f"{prefix}/"
            tracked, index_ns = self._take_index(place)
        if place is not None and tracked is not None:
            for path in self._dirty(tracked, os.fsencode(prefix), index_ns):
                # Known to differ from the index, whether it can be copied or not.
                self._files[path] = [0, None]
                self._take(path)
            self._take_all(self._untracked(place))
        else:
            self._take_all(self._walked())
        manifest = {
            "files": self._files,
            "common": place.common if place is not None and tracked is not None else None,
            "prefix": prefix,
            "began_ns": self._began_ns,
        }
        with open(f"{self._base}/manifest.new", "w", encoding="ascii") as file:
            json.dump(manifest, file)
        os.rename(f"{self._base}/manifest.new", f"{self._base}/manifest")

    def _take_index(self, place: GitPlace) -> tuple[dict[bytes, git_index.Entry] | None, int]:
        try:
            fd = os.open(f"{place.own}/index", _READ)
            with open(fd, "rb") as file:
                info = os.fstat(fd)
                content = file.read(git_index.MOST_BYTES + 1)
            entries = git_index.parse(content, hash_bytes=Git(place).hash_bytes)
        except (OSError, git_index.BadIndexError):
            return None, 0
        with open(f"{self._base}/index", "xb") as file:
            file.write(content)
        # What was written in the same moment as the index is judged by that moment.
        os.utime(f"{self._base}/index", ns=(info.st_atime_ns, info.st_mtime_ns))
        return entries, info.st_mtime_ns

    def _dirty(
        self, tracked: dict[bytes, git_index.Entry], prefix: bytes, index_ns: int
    ) -> Iterator[str]:
        for name, entry in tracked.items():
            if not name.startswith(prefix):
                continue
            path = os.fsdecode(name[len(prefix) :])
            if entry.mtime_ns >= index_ns or not _is_as_in_index(f"{self._project}/{path}", entry):
                yield path

    def _untracked(self, place: GitPlace) -> Iterable[str]:
        """Without what git ignores: that is made anew, not merged."""
        if not has_git():
            return self._walked()
        try:
            with Git(place) as git:
                names = git.plumbing(
                    *("ls-files", "--others", "--exclude-standard", "-z"),
                    index=f"{self._base}/index", work_tree=place.top, cwd=self._project,
                )  # fmt: skip
        except AgentKernelError:
            return ()
        return [os.fsdecode(name) for name in names.split(b"\0") if name][:_MOST_LOOKED_AT]

    def _walked(self) -> Iterator[str]:
        """Files, those further up first."""
        directories, looked_at = [""], 0
        for at in directories:
            with contextlib.suppress(OSError), os.scandir(f"{self._project}/{at}") as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    looked_at += 1
                    if looked_at > _MOST_LOOKED_AT:
                        return
                    if not entry.is_dir(follow_symlinks=False):
                        yield f"{at}{entry.name}"
                    elif entry.name != ".git":
                        directories.append(f"{at}{entry.name}/")

    def _take_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._copies >= MOST_COPIES or self._left <= 0:
                return
            if path not in self._files:
                self._take(path)

    def _take(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if is_secret_name(os.path.basename(parent), name):
            return
        with contextlib.suppress(OSError):
            self._copy(path)

    def _copy(self, path: str) -> None:
        full = f"{self._project}/{path}"
        if os.path.islink(full):
            info = os.lstat(full)
            if info.st_ctime_ns < self._began_ns:
                self._files[path] = [stat.S_IFLNK | 0o777, os.readlink(full)]
            return
        source = os.open(full, _READ)
        try:
            before = os.fstat(source)
            if not stat.S_ISREG(before.st_mode) or before.st_ctime_ns >= self._began_ns:
                return
            if before.st_size > MOST_OF_ONE or self._copies >= MOST_COPIES:
                return
            if not self._can_clone and before.st_size > self._left:
                return
            if b"\0" in os.pread(source, 8192, 0):
                return
            name = str(self._copies)
            target = os.open(f"{self._base}/copies/{name}", _WRITE, 0o600)
            try:
                self._fill(target, source, before.st_size)
            finally:
                os.close(target)
            self._copies += 1
            after = os.fstat(source)
            if (after.st_ctime_ns, after.st_size) == (before.st_ctime_ns, before.st_size):
                self._files[path] = [stat.S_IFREG | stat.S_IMODE(before.st_mode), name]
        finally:
            os.close(source)

    def _fill(self, target: int, source: int, size: int) -> None:
        if self._can_clone:
            try:
                fcntl.ioctl(target, _CLONE, source)
                return
            except OSError:
                self._can_clone = False
        content = os.pread(source, MOST_OF_ONE, 0)
        self._left -= len(content)
        os.write(target, content)


def _is_as_in_index(path: str, entry: git_index.Entry) -> bool:
    if not entry.is_plain:
        return False
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return (
        info.st_mtime_ns == entry.mtime_ns
        and info.st_ctime_ns == entry.ctime_ns
        and info.st_size & 0xFFFFFFFF == entry.size
        and info.st_ino & 0xFFFFFFFF == entry.inode
        and stat.S_IFMT(info.st_mode) == stat.S_IFMT(entry.mode)
    )


def main() -> None:
    project, base, began_ns = sys.argv[1:]
    os.nice(10)
    record(project, base, int(began_ns))


if __name__ == "__main__":
    main()
