"""What a guest has changed in a copy-on-write workspace, read from the overlay's upper.

Everything in the upper is hostile. Of the overlay's own marks (whiteouts, opaque directories, where
a copy came from) a guest can make none by hand, only by deleting and writing files.

The base is the host's directory as it was when the sandbox was made. What the host has changed
since is told by the kernel's time of change, which nobody can set: `host_changed`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from agentkernel.workspaces import beneath

Kind = Literal["added", "deleted", "modified"]
Type = Literal["file", "symlink", "directory", "special"]
MOST_CHANGES = 20_000
_MOST_DEPTH = 200
# Bigger ones are taken for changed: comparing them would take too long.
_MOST_COMPARED = 1 << 30
# Notes that a program writes for itself where nothing else looks: OpenCode's id of the project. No
# change of the project, and never applied.
_NOTES = frozenset({".git/opencode"})
_OPAQUE, _ORIGIN = "user.overlay.opaque", "user.overlay.origin"


@dataclass(frozen=True)
class Item:
    """One side of a change. `stamp`: which file it was, and in which state."""

    type: Type
    mode: int
    size: int
    stamp: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Change:
    """`before` is the host's, now; `after` the guest's. `problem`: why it can't be read. `copied`:
    it began as a copy of some file of the host's."""

    path: str
    kind: Kind
    before: Item | None
    after: Item | None
    host_changed: bool = False
    problem: str = ""
    copied: bool = False
    renamed_from: str | None = None


@dataclass(frozen=True)
class Changes:
    entries: list[Change]
    truncated: bool


class Reader:
    """Reads one upper (`upper`) over one project (`project`), both open directories.

    `hidden`: paths that the guest was not shown. `ours`: stamps of what `apply` has written.
    """

    def __init__(
        self,
        upper: int,
        project: int,
        *,
        began_ns: int,
        hidden: frozenset[str] = frozenset(),
        ours: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self._upper, self._project = upper, project
        self._began_ns = began_ns
        self._hidden = hidden
        self._ours = ours or {}
        self._found: list[Change] = []

    def read(self) -> Changes:
        upper = os.dup(self._upper)
        project = os.dup(self._project)
        try:
            self._walk(upper, project, "", opaque=False, depth=0)
        except _EnoughError:
            return Changes(self._ordered(), truncated=True)
        finally:
            os.close(upper)
            os.close(project)
        return Changes(self._ordered(), truncated=False)

    def _ordered(self) -> list[Change]:
        return sorted(self._found, key=lambda change: change.path)

    def _walk(self, upper: int, lower: int | None, at: str, *, opaque: bool, depth: int) -> None:
        names = os.listdir(upper)
        for name in names:
            path = f"{at}/{name}" if at else name
            if path in _NOTES:
                continue
            try:
                self._entry(upper, lower, name, path, opaque=opaque, depth=depth)
            except FileNotFoundError:
                continue  # gone while we looked
            except OSError as exc:
                self._add(
                    Change(path, "modified", None, None, problem=exc.strerror or "unreadable")
                )
        if opaque and lower is not None:
            for name in set(os.listdir(lower)) - set(names):
                self._deleted(lower, name, f"{at}/{name}" if at else name)

    def _entry(
        self, upper: int, lower: int | None, name: str, path: str, *, opaque: bool, depth: int
    ) -> None:
        info = os.stat(name, dir_fd=upper, follow_symlinks=False)
        under = None if lower is None or path in self._hidden else _lstat(lower, name)
        if stat.S_ISCHR(info.st_mode):
            if lower is not None and under is not None:
                self._deleted(lower, name, path)
            return
        before, after = _item(under), _item(info)
        if after is None:
            return
        if after.type == "directory":
            self._directory(upper, lower, name, path, before, after, opaque=opaque, depth=depth)
            return
        if before is None:
            copied = after.type == "file" and self._has(upper, name, _ORIGIN)
            hidden = path in self._hidden
            self._add(Change(path, "added", None, after, host_changed=hidden, copied=copied))
            return
        if before.type == "directory" and lower is not None:
            self._deleted(lower, name, path)
            self._add(Change(path, "added", None, after))
            return
        if before.type == after.type and self._is_same(path, before, after):
            return
        changed = self._host_changed(path, under)
        self._add(Change(path, "modified", before, after, host_changed=changed))

    def _directory(
        self, upper: int, lower: int | None, name: str, path: str, before: Item | None,
        after: Item, *, opaque: bool, depth: int,
    ) -> None:  # fmt: skip
        if depth >= _MOST_DEPTH:
            self._add(Change(path, "added", None, after, problem="too many directories deep"))
            return
        below = os.open(name, beneath.DIRECTORY, dir_fd=upper)
        under = -1
        try:
            if before is not None and before.type == "directory" and lower is not None:
                under = os.open(name, beneath.DIRECTORY, dir_fd=lower)
                if before.mode != after.mode:
                    self._add(Change(path, "modified", before, after))
            else:
                if before is not None and lower is not None:
                    self._deleted(lower, name, path)
                self._add(Change(path, "added", None, after))
            now_opaque = opaque or _xattr(below, _OPAQUE) == b"y"
            self._walk(
                below, under if under >= 0 else None, path, opaque=now_opaque, depth=depth + 1
            )
        finally:
            os.close(below)
            if under >= 0:
                os.close(under)

    def _deleted(self, lower: int, name: str, path: str) -> None:
        """One that the guest has deleted, with all that it saw below it."""
        info = _lstat(lower, name)
        item = _item(info)
        if item is None or path in self._hidden:
            return
        if item.type == "directory":
            fd = os.open(name, beneath.DIRECTORY, dir_fd=lower)
            try:
                for inner in os.listdir(fd):
                    self._deleted(fd, inner, f"{path}/{inner}")
            finally:
                os.close(fd)
        changed = item.type != "directory" and self._host_changed(path, info)
        self._add(Change(path, "deleted", item, None, host_changed=changed))

    def _is_same(self, path: str, before: Item, after: Item) -> bool:
        if before.type == "symlink":
            return beneath.link_target(self._project, path) == beneath.link_target(
                self._upper, path
            )
        if before.mode != after.mode or before.size != after.size:
            return False
        if before.size > _MOST_COMPARED:
            return False
        return before.type == "file" and beneath.same_content(self._upper, self._project, path)

    def _host_changed(self, path: str, info: os.stat_result | None) -> bool:
        if info is None or info.st_ctime_ns < self._began_ns:
            return False
        return self._ours.get(path) != (info.st_ino, info.st_ctime_ns)

    def _has(self, directory: int, name: str, attribute: str) -> bool:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            return _xattr(fd, attribute) is not None
        finally:
            os.close(fd)

    def _add(self, change: Change) -> None:
        if len(self._found) >= MOST_CHANGES:
            raise _EnoughError
        self._found.append(change)


class _EnoughError(Exception):
    """There are more changes than anybody looks at."""


def with_renames(changes: list[Change], upper: int, project: int, most: int) -> list[Change]:
    """Pairs of a deleted and an added file of the same content become one."""
    gone: dict[tuple[int, int], list[Change]] = {}
    for change in changes:
        if change.kind == "deleted" and change.before and change.before.type == "file":
            gone.setdefault((change.before.size, change.before.mode), []).append(change)
    paired: dict[str, str] = {}
    for change in changes:
        after = change.after
        if change.kind != "added" or not after or after.type != "file" or not after.size:
            continue
        for old in gone.get((after.size, after.mode), []):
            try:
                same = beneath.read(upper, change.path, most) == beneath.read(
                    project, old.path, most
                )
            except OSError:
                continue
            if same and after.size <= most:
                paired[change.path] = old.path
                gone[after.size, after.mode].remove(old)
                break
    taken = set(paired.values())
    # A copy of what is nowhere: the host has deleted it since, unless it was moved and changed.
    moved = any(gone.values())
    return [
        replace(
            change,
            renamed_from=paired.get(change.path),
            host_changed=change.host_changed
            or (change.copied and not moved and change.path not in paired),
        )
        for change in changes
        if not (change.kind == "deleted" and change.path in taken)
    ]


def _lstat(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _item(info: os.stat_result | None) -> Item | None:
    if info is None:
        return None
    kinds: tuple[tuple[bool, Type], ...] = (
        (stat.S_ISREG(info.st_mode), "file"),
        (stat.S_ISLNK(info.st_mode), "symlink"),
        (stat.S_ISDIR(info.st_mode), "directory"),
    )
    kind: Type = next((kind for is_it, kind in kinds if is_it), "special")
    mode = 0o777 if kind == "symlink" else stat.S_IMODE(info.st_mode) & 0o777
    return Item(kind, mode, info.st_size, (info.st_ino, info.st_ctime_ns))


def _xattr(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None
