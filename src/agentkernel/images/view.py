"""Looking up a path as a guest will see it, without being in the guest.

The host's own `realpath` would follow a link to wherever it leads on the host; here a link can
only lead to what some layer shows. Layers are merged as the kernel does it: a whiteout hides what
is below it, and so do a file, a link and an opaque directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

MAX_LINKS = 40
MAX_FILE = 1 << 20
_OPAQUE = "user.overlay.opaque"


class View:
    """Host directories (topmost first) at guest paths; the longest guest path decides."""

    def __init__(self, mounts: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._mounts = sorted(mounts, key=lambda mount: len(mount[0]), reverse=True)

    def host(self, path: str) -> str | None:
        """The host path behind guest path `path`, whose last part may be a link; None if absent."""
        for target, sources in self._mounts:
            if target == "/":
                rest = path
            elif path == target or path.startswith(target + "/"):
                rest = path[len(target) :]
            else:
                continue
            return _merged(sources, [part for part in rest.split("/") if part])
        return None

    def resolve(self, path: str) -> str | None:
        """The guest path that `path` ends at after following every link; None if it is dead."""
        pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == ".":
                continue
            if part == "..":
                if done:
                    done.pop()
                continue
            here = "/" + "/".join([*done, part])
            host = self.host(here)
            if host is None:
                return None
            if os.path.islink(host):
                links += 1
                if links > MAX_LINKS:
                    return None
                target = os.readlink(host)
                if target.startswith("/"):
                    done = []
                pending.extend(piece for piece in reversed(target.split("/")) if piece)
                continue
            done.append(part)
        return "/" + "/".join(done)

    def resolve_host(self, path: str) -> str | None:
        """The host path of what `path` ends at; None if it is dead."""
        end = self.resolve(path)
        return None if end is None else self.host(end)

    def read(self, path: str, limit: int = MAX_FILE) -> bytes:
        """The beginning of a file, whoever made it; nothing of what is absent or no file."""
        host = self.resolve_host(path)
        if host is None:
            return b""
        try:
            fd = os.open(host, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        with open(fd, "rb") as file:
            try:
                return file.read(limit) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
            except OSError:
                return b""

    def names(self, path: str) -> list[str]:
        """What a directory holds, whichever layers it is of; nothing if it is none."""
        end = self.resolve(path)
        if end is None:
            return []
        found: set[str] = set()
        for target, sources in self._mounts:
            if end == target or target == "/" or end.startswith(target + "/"):
                rest = end if target == "/" else end[len(target) :]
                for directory in _directories(sources, [part for part in rest.split("/") if part]):
                    try:
                        found.update(os.listdir(directory))
                    except OSError:
                        continue
                break
        return sorted(name for name in found if self.host(f"{end.rstrip('/')}/{name}") is not None)

    def landing(self, path: str) -> str:
        """Where a directory `path` is, or would be if it were made: every link that is there is
        followed, what is missing is appended."""
        done = "/"
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                done = os.path.dirname(done)
                continue
            step = f"{done.rstrip('/')}/{part}"
            done = self.resolve(step) or step
        return done


def _merged(sources: Sequence[str], parts: Sequence[str]) -> str | None:
    """The host path of what the layers show at a path; its last part may be a link. No link of a
    layer is ever followed: one in the middle of the path ends that layer."""
    if not parts:
        found = (source.rstrip("/") or "/" for source in sources if os.path.isdir(source))
        return next(found, None)
    for directory in _directories(sources, parts[:-1]):
        candidate = f"{directory.rstrip('/')}/{parts[-1]}"
        info = _look(candidate)
        if info is not None:
            return None if _is_whiteout(info) else candidate
    return None


def _directories(sources: Sequence[str], parts: Sequence[str]) -> list[str]:
    """The directories of the layers that are merged at a path."""
    merged = [source.rstrip("/") or "/" for source in sources]
    for part in parts:
        below = []
        for directory in merged:
            candidate = f"{directory.rstrip('/')}/{part}"
            info = _look(candidate)
            if info is None:
                continue
            if not stat.S_ISDIR(info.st_mode):
                break
            below.append(candidate)
            if len(merged) > 1 and _is_opaque(candidate):
                break
        merged = below
    return merged


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _is_whiteout(info: os.stat_result) -> bool:
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def _is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False
