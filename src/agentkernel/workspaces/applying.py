"""A guest's changes, made in the host's directory. Blocking.

Three sides: the base, the host's file now and the guest's. Where the host has not changed a file
since the base, the guest's takes its place; where it has, both changes are made, line by line.
Where that can't be, because they meet or the base is not known, nothing is touched and it is a
conflict: both are still there, one in the directory and one in the sandbox.

Nothing is written but below the directory: each step goes by an open directory, no link is
followed, a file appears whole or not at all, and what is there now is looked at once more just
before.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.workspaces import beneath, displacing
from agentkernel.workspaces.base import Base, BaseFile
from agentkernel.workspaces.changes import Change, Item, Reader
from agentkernel.workspaces.diffing import text_of
from agentkernel.workspaces.lines import merge
from agentkernel.workspaces.risky import why_held_back

Outcome = Literal["applied", "merged", "conflict", "held", "skipped"]
DONE: tuple[Outcome, ...] = ("applied", "merged")
MOST_BYTES = 1 << 30
MOST_MERGED = 1 << 20
_CHUNK = 1 << 18
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING = Item("special", 0, 0)
_ORDER = {"deleted": 0, "added": 1, "modified": 2}


class AppliedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one change. `merged`: with what the host has changed in the same file; `held`:
    it needs `allow_risky`; `skipped`: it can't be made."""

    path: str
    kind: Literal["added", "deleted", "modified"]
    outcome: Outcome
    why: str = ""


class WorkspaceApplied(msgspec.Struct, frozen=True, kw_only=True):
    """`complete`: every change that was asked for is made. Of a commit: `ref` is where it is,
    `parent` what that was before, and `commit` null if there was nothing to commit."""

    files: list[AppliedFile]
    complete: bool
    ref: str | None = None
    commit: str | None = None
    parent: str | None = None


class NotAppliedError(Exception):
    """A change is not made; what became of it instead."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        self.outcome: Outcome = outcome
        self.why = why


@dataclass(frozen=True)
class _Side:
    """A file or link, read whole."""

    type: str
    mode: int
    content: bytes


class Applier:
    """Applies one upper to one project, both paths of directories. `marks` afterwards tell which
    files of the host are as this has left them. `mark_conflicts`: lines that both have changed are
    both written, between marks."""

    def __init__(
        self,
        upper: str,
        project: str,
        *,
        base: Base,
        began_ns: int,
        hidden: frozenset[str],
        ours: Mapping[str, tuple[int, int]],
        mark_conflicts: bool = False,
    ) -> None:
        self._paths = (upper, project)
        self._base = base
        self._mark_conflicts = mark_conflicts
        self._began_ns = began_ns
        self._hidden = hidden
        self.marks = dict(ours)
        self._upper = self._project = -1
        self._left = MOST_BYTES

    def apply(self, paths: Sequence[str], *, allow_risky: bool) -> WorkspaceApplied:
        """`paths`: only these, and what is below them; none: all. Raises OSError,
        InvalidInputError for a path that nothing was changed at."""
        with opened(self._paths[0]) as self._upper, opened(self._paths[1]) as self._project:
            reader = Reader(
                self._upper, self._project,
                began_ns=self._began_ns, hidden=self._hidden, ours=self.marks,
            )  # fmt: skip
            found = reader.read()
            if found.truncated:
                raise InvalidInputError(
                    "the sandbox has changed too many files to apply them",
                    hint="take them out with `agentkernel sandbox cp`",
                )
            wanted = _in_order(chosen(found.entries, paths))
            files = [self._one(change, allow_risky) for change in wanted]
        files.sort(key=lambda file: file.path)
        complete = all(file.outcome in DONE for file in files)
        return WorkspaceApplied(files=files, complete=complete)

    def _one(self, change: Change, allow_risky: bool) -> AppliedFile:
        outcome: Outcome = "applied"
        why = ""
        try:
            self._check(change, allow_risky)
            if not change.host_changed:
                self._carry_out(change)
            elif self._merge(change):
                outcome = "merged"
        except NotAppliedError as reason:
            outcome, why = reason.outcome, reason.why
        except displacing.ChangingError:
            outcome, why = "conflict", "it is being changed here this moment"
        except FileExistsError:
            outcome, why = "conflict", "there is something else of that name here"
        except OSError as exc:
            outcome, why = "skipped", exc.strerror or "it could not be written"
        return AppliedFile(path=text_of(change.path), kind=change.kind, outcome=outcome, why=why)

    def _check(self, change: Change, allow_risky: bool) -> None:
        item = change.after or change.before
        if change.problem or item is None:
            raise NotAppliedError("skipped", change.problem)
        if item.type == "special":
            raise NotAppliedError("skipped", "neither file, directory nor link")
        risk = why_held_back(change, self._upper)
        if risk and not allow_risky:
            raise NotAppliedError("held", risk)
        if any(is_at(change.path, hidden) for hidden in self._hidden):
            raise NotAppliedError("conflict", "the sandbox was not shown what is here")
        if change.before is None and item.type != "directory" and self._base.was_there(change.path):
            raise NotAppliedError("conflict", "it was deleted here since then")

    def _merge(self, change: Change) -> bool:
        """A file that both have changed. False: the host's is the base still, or again."""
        base = self._base.find(change.path)
        if base is None or change.before is None or change.before.type != base.type:
            raise NotAppliedError("conflict", "it was changed here, too, since then")
        here = self._read(self._project, change.path, change.before)
        if here.content == base.content and _same_mode(here.mode, base):
            self._carry_out(change)
            return False
        if change.after is None:
            raise NotAppliedError("conflict", "it was changed here and deleted there")
        there = self._read(self._upper, change.path, change.after)
        if there.type != base.type:
            raise NotAppliedError("conflict", "it was changed here and is another thing there")
        mode = _merged_mode(here.mode, there.mode, base)
        content, conflicts = _merged_content(base, here, there)
        if content is None or (conflicts and not self._mark_conflicts):
            raise NotAppliedError("conflict", f"both have changed the same lines ({conflicts}x)")
        if (content, mode) != (here.content, here.mode):
            self._put(change, content, mode, expected=here)
        self._remember(change, there.content)
        # It holds more than the guest has: it is never simply replaced.
        self.marks.pop(change.path, None)
        if conflicts:
            raise NotAppliedError(
                "conflict", f"both have changed the same lines ({conflicts}x): marked in the file"
            )
        return True

    def _read(self, root: int, path: str, item: Item) -> _Side:
        if item.type == "symlink":
            return _Side("symlink", item.mode, os.fsencode(beneath.link_target(root, path)))
        content = beneath.read(root, path, MOST_MERGED)
        if content is None:
            raise NotAppliedError("conflict", "it was changed here, too, and is too big to merge")
        return _Side(item.type, item.mode, content)

    def _put(self, change: Change, content: bytes, mode: int, *, expected: _Side) -> None:
        """What both together have become, if the host's file still is as it was read."""
        with beneath.opened_parent(self._project, change.path) as (parent, name):
            part = _part()
            try:
                if expected.type == "symlink":
                    os.symlink(os.fsdecode(content), part, dir_fd=parent)
                    _give_link(part, parent)
                else:
                    target = os.open(part, _NEW_FILE, 0o600, dir_fd=parent)
                    try:
                        _write(target, content)
                        _give(target, parent)
                        os.fchmod(target, mode)
                    finally:
                        os.close(target)
                seen = self._look_again(change, parent, name)
                again = self._read(self._project, change.path, change.before or _NOTHING)
                if again.content != expected.content:
                    raise displacing.ChangingError
                displacing.replace(parent, part, name, seen)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=parent)

    def _carry_out(self, change: Change) -> None:
        with beneath.opened_parent(self._project, change.path) as (parent, name):
            if change.after is None:
                self._delete(change, parent, name)
            elif change.after.type == "directory":
                self._directory(change, parent, name)
            else:
                self._replace(change, parent, name)

    def _delete(self, change: Change, parent: int, name: str) -> None:
        if change.before is not None and change.before.type == "directory":
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:
                raise NotAppliedError(
                    "conflict", "there is something in it that the sandbox has not deleted"
                ) from None
            return
        seen = self._look_again(change, parent, name)
        displacing.remove(parent, _part(), name, seen)
        self.marks.pop(change.path, None)
        self._base.remember(change.path, 0, None)

    def _directory(self, change: Change, parent: int, name: str) -> None:
        assert change.after is not None
        if change.kind == "added":
            os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, beneath.DIRECTORY, dir_fd=parent)
        try:
            if change.kind == "added":
                _give(fd, parent)
            os.fchmod(fd, change.after.mode)
        finally:
            os.close(fd)

    def _replace(self, change: Change, parent: int, name: str) -> None:
        """First beside it, then in its place."""
        assert change.after is not None
        part = _part()
        try:
            if change.after.type == "symlink":
                target = beneath.link_target(self._upper, change.path)
                os.symlink(target, part, dir_fd=parent)
                _give_link(part, parent)
                content: bytes | None = os.fsencode(target)
            else:
                content = self._copy(change, parent, part)
            made = os.stat(part, dir_fd=parent, follow_symlinks=False)
            if change.before is None:
                # Unlike a rename, a link never takes the place of what came meanwhile.
                os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            else:
                seen = self._look_again(change, parent, name)
                displacing.replace(parent, part, name, seen)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=parent)
        self._mark(change, parent, name, made)
        self._remember(change, content)

    def _mark(self, change: Change, parent: int, name: str, made: os.stat_result) -> None:
        """It is as we have left it, unless the host has been there already."""
        self.marks.pop(change.path, None)
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if (info.st_ino, info.st_mtime_ns) == (made.st_ino, made.st_mtime_ns):
                self.marks[change.path] = (info.st_ino, info.st_ctime_ns)

    def _remember(self, change: Change, content: bytes | None) -> None:
        assert change.after is not None
        kind = stat.S_IFLNK if change.after.type == "symlink" else stat.S_IFREG
        self._base.remember(change.path, kind | change.after.mode, content)

    def _copy(self, change: Change, parent: int, part: str) -> bytes | None:
        """Gives the content of a small one."""
        assert change.after is not None
        whole: bytearray | None = bytearray()
        with beneath.opened_file(self._upper, change.path) as source:
            # A guest that goes on writing must not fill the disk: so much and no more.
            if os.fstat(source).st_size > self._left:
                raise NotAppliedError("skipped", "it is too big: take it out with `sandbox cp`")
            target = os.open(part, _NEW_FILE, 0o600, dir_fd=parent)
            try:
                while content := os.read(source, min(_CHUNK, self._left + 1)):
                    self._left -= len(content)
                    if self._left < 0:
                        raise NotAppliedError("skipped", "it grows while it is read")
                    _write(target, content)
                    if whole is not None:
                        whole += content
                        whole = whole if len(whole) <= MOST_MERGED else None
                _give(target, parent)
                os.fchmod(target, change.after.mode)
            finally:
                os.close(target)
        return None if whole is None else bytes(whole)

    def _look_again(self, change: Change, parent: int, name: str) -> os.stat_result:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if change.before is None or change.before.stamp != (info.st_ino, info.st_ctime_ns):
            raise displacing.ChangingError
        return info


def _part() -> str:
    return f".agentkernel-{new_id()}.part"


def _same_mode(mode: int, base: BaseFile) -> bool:
    return (bool(mode & 0o100) == base.executable) if base.mode is None else mode == base.mode


def _merged_mode(here: int, there: int, base: BaseFile) -> int:
    """Whoever has changed it; the host, if both or nobody."""
    return there if _same_mode(here, base) and not _same_mode(there, base) else here


def _merged_content(base: BaseFile, here: _Side, there: _Side) -> tuple[bytes | None, int]:
    """And how often they meet. None: it is not made of lines."""
    for same, result in ((base.content, there), (there.content, here)):
        if here.content == same:
            return result.content, 0
    if there.content == base.content:
        return here.content, 0
    if base.type == "symlink" or any(
        b"\0" in side for side in (base.content, here.content, there.content)
    ):
        return None, 1
    merged = merge(
        base.content, here.content, there.content, our_name="here", their_name="the sandbox"
    )
    return merged.content, merged.conflicts


def chosen(entries: list[Change], paths: Sequence[str]) -> list[Change]:
    if not paths:
        return entries
    wanted = [os.path.normpath(path) for path in paths]
    for path, clean in zip(paths, wanted, strict=True):
        if clean != "." and not any(is_at(change.path, clean) for change in entries):
            raise InvalidInputError(
                f"the sandbox has changed nothing at {path!r}",
                hint="paths are meant from the workspace's top; `agentkernel diff --stat` has them",
            )
    return [change for change in entries if any(is_at(change.path, path) for path in wanted)]


def is_at(path: str, wanted: str) -> bool:
    return wanted == "." or path == wanted or path.startswith(f"{wanted}/")


def _in_order(changes: list[Change]) -> list[Change]:
    """What goes goes from below, before what comes, from above."""
    gone = [change for change in changes if change.kind == "deleted"]
    rest = [change for change in changes if change.kind != "deleted"]
    return [
        *sorted(gone, key=lambda change: change.path, reverse=True),
        *sorted(rest, key=lambda change: (_ORDER[change.kind], change.path)),
    ]


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _give(fd: int, parent: int) -> None:
    """To whoever the directory belongs to, where we are somebody who may."""
    if os.geteuid() == 0:
        owner = os.fstat(parent)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _give_link(name: str, parent: int) -> None:
    if os.geteuid() == 0:
        owner = os.fstat(parent)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
