"""How a project was when a sandbox got it, or when its changes were last applied. Blocking.

`recording.py` writes most of it; what `apply` has taken over comes on top, because from then on
that is what both sides have begun with. What is not known is not guessed: then a change of both
sides is a conflict.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Literal

from agentkernel.errors import AgentKernelError
from agentkernel.workspaces import beneath, git_index
from agentkernel.workspaces.git import Git, GitPlace, Objects
from agentkernel.workspaces.recording import MOST_OF_ALL, MOST_OF_ONE


@dataclass(frozen=True)
class BaseFile:
    """`mode`: as `chmod` has it; None: only `executable` is known."""

    type: Literal["file", "symlink"]
    content: bytes
    mode: int | None
    executable: bool


@dataclass
class _Written:
    """What the recorder has found."""

    files: dict[str, list[Any]]
    tracked: dict[bytes, git_index.Entry]
    prefix: bytes
    began_ns: int


class Base:
    """That of one sandbox, in a directory of ours that may not be there. A context."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._written: _Written | None = None
        self._after: dict[str, list[Any]] = {}
        self._after_changed = False
        self._open = contextlib.ExitStack()
        self._objects: Objects | None = None
        self._git: Git | None = None

    def __enter__(self) -> Base:
        with contextlib.suppress(OSError, ValueError), open(f"{self._directory}/after") as file:
            self._after = json.load(file)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        if self._after_changed:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            with open(f"{self._directory}/after.new", "w", encoding="ascii") as file:
                json.dump(self._after, file)
            os.rename(f"{self._directory}/after.new", f"{self._directory}/after")

    def was_there(self, path: str) -> bool:
        """True: certainly. False also for what nobody knows."""
        if path in self._after:
            return bool(self._after[path][0])
        written = self._read()
        if path in written.files:
            return written.files[path][1] is not None
        return self._tracked(path) is not None

    def find(self, path: str) -> BaseFile | None:
        """None: not known."""
        known = self._after.get(path)
        if known is None:
            known = self._read().files.get(path)
        if known is not None:
            return self._copied(known)
        entry = self._tracked(path)
        return None if entry is None else self._from_git(entry)

    def remember(self, path: str, mode: int, content: bytes | None) -> None:
        """What both have now. `mode` 0: nothing is there; `content` None: not known, or no text."""
        if not mode and path not in self._after and not self.was_there(path):
            return  # nothing was known of it
        known: list[int | str | None] = [mode, None, 0]
        if mode and content is not None and len(content) <= MOST_OF_ONE:
            if stat.S_ISLNK(mode):
                known[1] = os.fsdecode(content)
            elif b"\0" not in content and self._has_room(path, len(content)):
                known[1:] = [self._store(path, content), len(content)]
        self._after[path] = known
        self._after_changed = True

    def _store(self, path: str, content: bytes) -> str:
        os.makedirs(f"{self._directory}/copies", mode=0o700, exist_ok=True)
        before = self._after.get(path)
        name = before[1] if before and before[1] and stat.S_ISREG(before[0]) else None
        name = name or f"after-{len(self._after)}-{os.urandom(6).hex()}"
        with open(f"{self._directory}/copies/{name}.new", "wb") as file:
            file.write(content)
        os.rename(f"{self._directory}/copies/{name}.new", f"{self._directory}/copies/{name}")
        return str(name)

    def _has_room(self, path: str, size: int) -> bool:
        others = sum(entry[2] for name, entry in self._after.items() if name != path)
        return bool(others + size <= MOST_OF_ALL)

    def _copied(self, known: list[Any]) -> BaseFile | None:
        mode, name = known[:2]
        if name is None:
            return None
        if stat.S_ISLNK(mode):
            return BaseFile("symlink", os.fsencode(name), None, False)
        try:
            fd = os.open(self._directory, beneath.DIRECTORY)
        except OSError:
            return None
        try:
            content = beneath.read(fd, f"copies/{os.path.basename(name)}", MOST_OF_ONE)
        except OSError:
            return None
        finally:
            os.close(fd)
        if content is None:
            return None
        return BaseFile("file", content, stat.S_IMODE(mode) & 0o777, bool(mode & 0o100))

    def _tracked(self, path: str) -> git_index.Entry | None:
        written = self._read()
        if path in written.files:
            return None
        entry = written.tracked.get(written.prefix + os.fsencode(path))
        # One that came after the beginning tells what the host has done since.
        if entry is None or not entry.is_plain or entry.ctime_ns >= written.began_ns:
            return None
        return entry if stat.S_IFMT(entry.mode) in (stat.S_IFREG, stat.S_IFLNK) else None

    def _from_git(self, entry: git_index.Entry) -> BaseFile | None:
        assert self._git is not None
        try:
            if self._objects is None:
                self._open.enter_context(self._git)
                self._objects = self._open.enter_context(self._git.objects())
            content = self._objects.blob(entry.object, MOST_OF_ONE)
        except AgentKernelError:
            return None
        # A file of another size was made of the object by a filter.
        if content is None or len(content) != entry.size:
            return None
        kind: Literal["file", "symlink"] = "symlink" if stat.S_ISLNK(entry.mode) else "file"
        return BaseFile(kind, content, None, bool(entry.mode & 0o100))

    def _read(self) -> _Written:
        if self._written is not None:
            return self._written
        self._written = _Written({}, {}, b"", 0)
        try:
            with open(f"{self._directory}/manifest", encoding="ascii") as file:
                manifest = json.load(file)
            self._written.files = manifest["files"]
            common = manifest["common"]
            if common is not None:
                self._git = Git(GitPlace(common, common, common))
                with open(f"{self._directory}/index", "rb") as index:
                    self._written.tracked = git_index.parse(
                        index.read(), hash_bytes=self._git.hash_bytes
                    )
            self._written.prefix = os.fsencode(manifest["prefix"])
            self._written.began_ns = manifest["began_ns"]
        except (OSError, ValueError, KeyError, git_index.BadIndexError):
            pass  # not made, or not finished
        return self._written
