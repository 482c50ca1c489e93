"""A guest's changes as a commit on a ref of the host's repository. Blocking.

Neither the host's index nor its files are touched, and no hook or filter is run: objects are made
by `git fast-import` from what was read here, and one ref is moved, if it still is where it was. As
with files there are three sides: what the guest began with, what the ref has now, and the guest's.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.workspaces import beneath
from agentkernel.workspaces.applying import (
    AppliedFile,
    NotAppliedError,
    Outcome,
    WorkspaceApplied,
    chosen,
    is_at,
    opened,
)  # fmt: skip
from agentkernel.workspaces.base import Base
from agentkernel.workspaces.branches import commit_at, find_branch, place_of
from agentkernel.workspaces.changes import Change, Reader
from agentkernel.workspaces.diffing import text_of
from agentkernel.workspaces.git import Git, GitError, GitPlace, Objects, find_git
from agentkernel.workspaces.lines import merge
from agentkernel.workspaces.model import Workspace
from agentkernel.workspaces.risky import why_held_back

MOST_BYTES = 128 << 20
MOST_MERGED = 1 << 20
_NEW = "refs/agentkernel/new"
_LINK = "120000"


@dataclass(frozen=True)
class Target:
    """Where commits go. `start`: where the ref begins if it is not there. `tree`: the commit that
    the guest began with; None: it began with the project's files as they were. `prefix`: where the
    project is in the repository; `work_tree`: the directory that stands for its top."""

    place: GitPlace
    ref: str
    start: str
    tree: str | None
    work_tree: str
    prefix: str = ""


@dataclass
class _Plan:
    """What the commit changes. `guests`: of each path the guest's own content, as an object."""

    deleted: set[str] = field(default_factory=set)
    written: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    extra: list[bytes] = field(default_factory=list)
    guests: dict[str, str | None] = field(default_factory=dict)


class Committer:
    """Commits one upper over one project. `record`: a file of ours, what was committed before."""

    def __init__(
        self,
        upper: str,
        project: str,
        target: Target,
        *,
        base: Base,
        record: str,
        began_ns: int,
        hidden: frozenset[str],
    ) -> None:
        self._paths = (upper, project)
        self._target = target
        self._base = base
        self._record = record
        self._began_ns = began_ns
        self._hidden = hidden
        self._left = MOST_BYTES
        self._upper = self._project = -1
        self._before: dict[str, str | None] = {}
        self._tip: dict[str, tuple[str, str]] = {}
        self._start: dict[str, tuple[str, str]] = {}
        self._objects: Objects
        self._hash = "sha1"
        # Contents that may be no objects of the repository.
        self._old: dict[str, bytes] = {}
        self._directories: set[str] | None = None

    def commit(self, paths: Sequence[str], *, message: str, allow_risky: bool) -> WorkspaceApplied:
        """Raises OSError, GitError, ConflictError if the ref was moved meanwhile."""
        target = self._target
        with Git(target.place) as git, opened(self._paths[0]) as self._upper:
            self._hash = "sha256" if git.hash_bytes == 32 else "sha1"
            at = commit_at(git, target.ref)
            parent = at or target.start
            self._before = _committed(self._record)
            self._tip = _tree(git, parent)
            self._start = _tree(git, target.tree) if target.tree else {}
            with opened(self._paths[1]) as self._project, git.objects() as self._objects:
                reader = Reader(
                    self._upper, self._project, began_ns=self._began_ns, hidden=self._hidden
                )
                found = reader.read()
                if found.truncated:
                    raise InvalidInputError("the sandbox has changed too many files to commit them")
                wanted = [
                    change
                    for change in chosen(found.entries, paths)
                    # The repository in a checkout of ours is ours, and made up.
                    if _is_file(change) and not (target.tree and is_at(change.path, ".git"))
                ]
                ignored = self._ignored(git, wanted)
                plan = _Plan()
                # What goes first: only in the place of what is gone can something else come.
                wanted.sort(key=lambda change: (change.after is not None, change.path))
                files = [self._one(change, plan, ignored, allow_risky) for change in wanted]
            files = sorted(
                (file for file in files if file.outcome != "skipped" or file.why),
                key=lambda file: file.path,
            )
            done = all(file.outcome in ("applied", "merged") for file in files)
            new = None
            if plan.deleted or plan.written:
                new = self._write(git, plan, parent, message)
                words = ("update-ref", "-m", "agentkernel apply --commit", target.ref, new)
                try:
                    git.in_repository(*words, at or "0" * len(new), writes=True)
                except GitError as exc:
                    raise ConflictError(
                        f"{target.ref} could not be moved: {exc.message}", hint="try again"
                    ) from None
            _record_committed(self._record, self._before | plan.guests)
        return WorkspaceApplied(
            ref=target.ref, commit=new, parent=parent, files=files, complete=done
        )

    def _ignored(self, git: Git, changes: list[Change]) -> set[str]:
        """Of what is new, what git ignores by the host's own files; the guest's have no say."""
        new = [
            os.fsencode(change.path)
            for change in changes
            if change.after is not None and self._at(change.path) not in self._tip
        ]
        if not new:
            return set()
        said = git.plumbing(
            *("check-ignore", "--stdin", "-z", "--no-index"), stdin=b"\0".join(new) + b"\0",
            work_tree=self._target.work_tree, cwd=self._paths[1], accept=(0, 1),
        )  # fmt: skip
        return {os.fsdecode(name) for name in said.split(b"\0") if name}

    def _at(self, path: str) -> str:
        return self._target.prefix + path

    def _one(
        self, change: Change, plan: _Plan, ignored: set[str], allow_risky: bool
    ) -> AppliedFile:
        outcome: Outcome = "applied"
        why = ""
        try:
            if change.path in ignored:
                raise NotAppliedError("skipped", "")
            self._check(change, plan, allow_risky)
            if self._decide(change, plan):
                outcome = "merged"
        except NotAppliedError as reason:
            outcome, why = reason.outcome, reason.why
        except OSError as exc:
            outcome, why = "skipped", exc.strerror or "it could not be read"
        return AppliedFile(path=text_of(change.path), kind=change.kind, outcome=outcome, why=why)

    def _check(self, change: Change, plan: _Plan, allow_risky: bool) -> None:
        item = change.after or change.before
        if change.problem or item is None:
            raise NotAppliedError("skipped", change.problem or "it could not be read")
        if item.type == "special":
            raise NotAppliedError("skipped", "neither file, directory nor link")
        parts = [part.lower().rstrip(". ") for part in change.path.split("/")]
        if any(part in (".git", "git~1", "") for part in parts):
            raise NotAppliedError("held", "git has no such names in commits")
        risk = why_held_back(change, self._upper)
        if risk and not allow_risky:
            raise NotAppliedError("held", risk)
        if any(is_at(change.path, hidden) for hidden in self._hidden):
            raise NotAppliedError("conflict", "the sandbox was not shown what is here")
        if change.after is not None:
            self._check_place(change.path, plan.deleted)

    def _check_place(self, path: str, gone: set[str]) -> None:
        """Neither below a file of the ref's nor in the place of a directory of it."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if self._at(above) in self._tip and self._at(above) not in gone:
                raise NotAppliedError("conflict", f"{text_of(above)} is a file there")
        if self._directories is None:
            self._directories = self._directories_without(gone)
        if self._at(path) in self._directories:
            raise NotAppliedError("conflict", "it is a directory there")

    def _directories_without(self, gone: set[str]) -> set[str]:
        """Those of the ref in which something is left."""
        found: set[str] = set()
        for path in self._tip.keys() - gone:
            above = os.path.dirname(path)
            while above and above not in found:
                found.add(above)
                above = os.path.dirname(above)
        return found

    def _decide(self, change: Change, plan: _Plan) -> bool:
        """True: two changes became one."""
        at = self._at(change.path)
        tip = self._tip.get(at)
        known, base = self._began_with(change)
        if change.after is None:
            if tip is not None and (not known or base != tip[1]):
                raise NotAppliedError("conflict", "it was changed there, too, since then")
            if tip is not None:
                plan.deleted.add(at)
            plan.guests[change.path] = None
            return False
        mode, content = self._content(change)
        guest = self._name_of(content)
        merged = self._settle(change, plan, tip, (known, base), mode, content, guest)
        # Only what is in the commit is what both have from now on.
        plan.guests[change.path] = guest
        return merged

    def _settle(
        self, change: Change, plan: _Plan, tip: tuple[str, str] | None,
        began: tuple[bool, str | None], mode: str, content: bytes, guest: str,
    ) -> bool:  # fmt: skip
        known, base = began
        at = self._at(change.path)
        if tip is not None and tip == (mode, guest):
            return False
        untouched = known and base == (None if tip is None else tip[1])
        # What was never committed is added, however the guest came to it.
        unknown_there = tip is None and self._target.tree is None
        if untouched or unknown_there or (tip is not None and tip[1] == guest):
            plan.written[at] = (mode, content)
            return False
        if tip is None:
            raise NotAppliedError("conflict", "it was deleted there since then")
        if known and base == guest:
            return False
        return self._merged(change, plan, tip, base if known else None, mode, content)

    def _merged(
        self, change: Change, plan: _Plan, tip: tuple[str, str], base: str | None, mode: str,
        content: bytes,
    ) -> bool:  # fmt: skip
        old = None
        if base is not None:
            old = self._objects.blob(base, MOST_MERGED) or self._old.get(base)
        here = self._objects.blob(tip[1], MOST_MERGED)
        texts = (old, here, content)
        if mode == _LINK or any(
            text is None or b"\0" in text or len(text) > MOST_MERGED for text in texts
        ):
            raise NotAppliedError("conflict", "it was changed there, too, since then")
        assert old is not None and here is not None
        result = merge(old, here, content, our_name="there", their_name="the sandbox")
        if result.conflicts:
            raise NotAppliedError(
                "conflict", f"both have changed the same lines ({result.conflicts}x)"
            )
        plan.written[self._at(change.path)] = (mode, result.content)
        plan.extra.append(content)
        return True

    def _began_with(self, change: Change) -> tuple[bool, str | None]:
        """Whether it is known, and the object (None: there was none)."""
        if change.path in self._before:
            return True, self._before[change.path]
        if self._target.tree is not None:
            entry = self._start.get(self._at(change.path))
            return True, None if entry is None else entry[1]
        if change.before is None:
            return not self._base.was_there(change.path), None
        content: bytes | None = None
        if change.host_changed:
            file = self._base.find(change.path)
            content = None if file is None else file.content
        elif change.before.type == "symlink":
            content = os.fsencode(beneath.link_target(self._project, change.path))
        else:
            content = beneath.read(self._project, change.path, MOST_MERGED)
        if content is None:
            return False, None
        name = self._name_of(content)
        self._old[name] = content
        return True, name

    def _content(self, change: Change) -> tuple[str, bytes]:
        assert change.after is not None
        if change.after.type == "symlink":
            return _LINK, os.fsencode(beneath.link_target(self._upper, change.path))
        content = beneath.read(self._upper, change.path, self._left)
        if content is None:
            raise NotAppliedError("skipped", "it is too big: take it out with `sandbox cp`")
        self._left -= len(content)
        return ("100755" if change.after.mode & 0o100 else "100644"), content

    def _name_of(self, content: bytes) -> str:
        """The name that git gives it."""
        return hashlib.new(self._hash, b"blob %d\0" % len(content) + content).hexdigest()

    def _write(self, git: Git, plan: _Plan, parent: str, message: str) -> str:
        file = git.write_scratch("stream", b"")
        name, address = map(_word, git.identity())
        who = f"{name} <{address}> {int(time.time())} +0000"
        with open(file, "wb") as stream:
            for content in plan.extra:
                stream.write(b"blob\ndata %d\n" % len(content) + content + b"\n")
            text = message.encode("utf-8", "replace")
            stream.write(f"commit {_NEW}\nauthor {who}\ncommitter {who}\n".encode())
            stream.write(b"data %d\n" % len(text) + text + f"\nfrom {parent}\n".encode())
            for path in sorted(plan.deleted):
                stream.write(b"D " + _quoted(path) + b"\n")
            for path, (mode, content) in plan.written.items():
                stream.write(f"M {mode} inline ".encode() + _quoted(path) + b"\n")
                stream.write(b"data %d\n" % len(content) + content + b"\n")
            stream.write(b"done\n")
        with open(file, "rb") as stream:
            words = ("fast-import", "--quiet", "--done", "--date-format=raw")
            git.plumbing(*words, stdin=stream, writes=True)
        os.unlink(file)
        return git.plumbing("rev-parse", "--verify", _NEW).decode().strip()


def commit_target(workspace: Workspace, project: str, name: str) -> Target:
    """Where commits of a sandbox go: its branch, or a ref of its own if that is checked out: a
    branch that moves under somebody's files makes them look changed. Raises ConflictError."""
    own = f"refs/agentkernel/{name}"
    if workspace.own_tree:
        branch = find_branch(place_of(workspace.repository), workspace.branch)
        ref = branch.ref if branch.checked_out is None else own
        start = branch.commit if branch.exists else workspace.commit
        return Target(branch.place, ref, start, workspace.commit, project)
    place = find_git(workspace.path)
    if place is None:
        raise ConflictError(f"{workspace.path} is in no git repository", hint="apply without it")
    with Git(place) as git:
        head = commit_at(git, "HEAD")
    if head is None:
        raise ConflictError(f"the repository {place.top} has no commit yet")
    prefix = os.path.relpath(workspace.path, place.top)
    prefix = "" if prefix == "." else f"{prefix}/"
    return Target(place, own, head, None, place.top, prefix)


def _is_file(change: Change) -> bool:
    """git knows no directories."""
    item = change.after or change.before
    return item is None or item.type != "directory"


def _tree(git: Git, commit: str) -> dict[str, tuple[str, str]]:
    """Mode and object of each path; submodules, too."""
    found = {}
    for line in git.plumbing("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        if line:
            words, _, name = line.partition(b"\t")
            mode, _, object = words.decode().split(" ")
            found[os.fsdecode(name)] = (mode, object)
    return found


def _quoted(path: str) -> bytes:
    raw = os.fsencode(path)
    return b'"' + b"".join(b"\\%03o" % byte for byte in raw) + b'"'


def _word(text: str) -> str:
    """Of a name or address, what can stand in a commit."""
    return "".join(c for c in text if c.isprintable() and c not in "<>").strip() or "agentkernel"


def _committed(path: str) -> dict[str, str | None]:
    try:
        with open(path, encoding="ascii") as file:
            known: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return {}
    return known


def _record_committed(path: str, known: dict[str, str | None]) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(known, file)
    os.rename(f"{path}.new", path)
