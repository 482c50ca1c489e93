"""Looking up a path as a guest will see it, without being in the guest.

The host's own `realpath` would follow a link to wherever it leads on the host; here a link can
only lead to what some layer shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

MAX_LINKS = 40


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
            for source in sources:
                candidate = source.rstrip("/") + rest
                if os.path.lexists(candidate or "/"):
                    return candidate or "/"
            return None
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
