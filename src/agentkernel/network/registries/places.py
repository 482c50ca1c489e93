"""Bounded reading of a machine's configuration.

Files may be missing, huge, no files at all, or not ours: then they say nothing, and a note tells
why. All that was looked at is remembered, so that the same questions need be asked again only when
an answer may be another one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_BYTES = 256 << 10
TOML_LINE = 4096
MAX_FILES = 256
MAX_NOTES = 64
PREFIXES = ("PIP_", "UV_", "NPM_CONFIG_", "CARGO_", "GO", "BUNDLE_", "MAVEN_", "M2_")
EXACT = ("PATH", "NETRC", "VIRTUAL_ENV", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")

Signature = tuple[int, int, int, int] | None


def relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that package clients' configuration depends on."""
    return {
        name: value
        for name, value in environment.items()
        if name in EXACT or name.upper().startswith(PREFIXES)
    }


def signature(path: str) -> Signature:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino


def _read_all(fd: int) -> bytes:
    """All of a file, or one byte more than it may have."""
    content = b""
    while len(content) <= FILE_BYTES:
        more = os.read(fd, FILE_BYTES + 1 - len(content))
        if not more:
            break
        content += more
    return content


class Places:
    """The machine's files below `root`, the user's below `home`, and the variables of one process.

    `home` is a path of the machine, as all paths that are asked for: `root` stands before them.
    """

    def __init__(self, environment: Mapping[str, str], home: Path, root: Path) -> None:
        self.environment = dict(environment)
        self.home = os.path.normpath(home)
        self.root = os.path.normpath(root)
        self.seen: dict[str, Signature] = {}
        self.mentions: dict[str, str] = {}
        self.notes: list[str] = []
        # In a user namespace root's files have another owner: that of the root directory.
        root_owner = signature(self.root) and os.stat(self.root).st_uid
        self.owners = {0, os.geteuid(), root_owner}
        config = self.variable("XDG_CONFIG_HOME")
        self.config = config if config.startswith("/") else f"{self.home}/.config"

    def note(self, sentence: str) -> None:
        if len(self.notes) < MAX_NOTES and sentence not in self.notes:
            self.notes.append(sentence)

    def variable(self, name: str) -> str:
        return self.environment.get(name, "").strip()

    def mentioned(self, name: str) -> str:
        """A variable that a file names."""
        return self.mentions.setdefault(name, self.environment.get(name, ""))

    def outside(self, path: str) -> str:
        """Where a path of the machine is for us."""
        return path if self.root == "/" else self.root + path

    def exists(self, path: str) -> bool:
        return self._look(path) is not None

    def _look(self, path: str) -> Signature:
        full = self.outside(path)
        if full not in self.seen:
            if len(self.seen) >= MAX_FILES:
                return None
            self.seen[full] = signature(full)
        return self.seen[full]

    def text(self, path: str) -> str:
        """The file's text, or "": it is not there, or says nothing that could be used."""
        if not path.startswith("/") or "\0" in path or self._look(path) is None:
            return ""
        try:
            # O_NONBLOCK: a pipe without a writer would be waited for.
            fd = os.open(self.outside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.note(f"{path} cannot be read ({error.strerror}), so it counts as empty.")
            return ""
        try:
            info = os.fstat(fd)
            why = self._unusable(info)
            content = b"" if why or not stat.S_ISREG(info.st_mode) else _read_all(fd)
        except OSError as error:
            why, content = f"cannot be read ({error.strerror})", b""
        finally:
            os.close(fd)
        if len(content) > FILE_BYTES:
            why = f"is larger than {FILE_BYTES >> 10} KiB"
        if why:
            self.note(f"{path} {why}, so it counts as empty.")
            return ""
        return content.decode("utf-8", "replace").removeprefix("\ufeff")

    def _unusable(self, info: os.stat_result) -> str:
        if stat.S_ISCHR(info.st_mode):
            return ""  # /dev/null: the usual way to say that there is none
        if not stat.S_ISREG(info.st_mode):
            return "is not a regular file"
        if info.st_uid not in self.owners or info.st_mode & stat.S_IWOTH:
            return "can be written by others"  # and it decides which hosts sandboxes may reach
        return ""

    def toml(self, path: str) -> dict[str, Any]:
        """The file's tables; none if it is no TOML."""
        text = self.text(path) if path else ""
        if not text:
            return {}
        import tomllib

        try:
            # A key of many parts takes their number squared.
            if len(max(text.splitlines(), key=len, default="")) <= TOML_LINE:
                return tomllib.loads(text)
        except (ValueError, RecursionError):
            pass
        self.note(f"{path} is not usable as TOML, so it counts as empty.")
        return {}

    def listing(self, path: str, suffixes: tuple[str, ...]) -> list[str]:
        """Paths of the files in a directory whose names end so, in the order of their names."""
        if self._look(path) is None:
            return []
        try:
            names = sorted(os.listdir(self.outside(path)))
        except OSError:
            return []
        return [f"{path}/{name}" for name in names if name.endswith(suffixes)][:MAX_FILES]

    def first(self, *paths: str) -> str:
        """The first of these paths that exists, or ""."""
        return next((path for path in paths if self.exists(path)), "")
