"""Where a path of the host is inside, and the other way round.

What must hold: a path is the project's or below it by its components, never by how its text begins;
any other path stays as it is. That is for people to find files by: no access depends on it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from urllib.parse import quote, unquote, urlsplit, urlunsplit

_UNQUOTED = "/:@!$&'()*+,;=~"


class PathMap:
    """`host`: the project as the editor calls it; `guest`: the same inside. `aliases`: other names
    of `host`, such as where its links lead, which are understood and never used."""

    def __init__(self, host: str, guest: str, aliases: Sequence[str] = ()) -> None:
        self.host = posixpath.normpath(host)
        self.guest = posixpath.normpath(guest)
        self._hosts = (self.host, *(posixpath.normpath(alias) for alias in aliases))

    @property
    def same(self) -> bool:
        """Nothing has to be rewritten."""
        return all(host == self.guest for host in self._hosts)

    def to_guest(self, path: str) -> str:
        found = self.inside(path)
        return path if found is None else found

    def inside(self, path: str) -> str | None:
        """Where a path of the host is inside; None if it is not of the project."""
        for host in self._hosts:
            if (moved := _moved(path, host, self.guest)) is not None:
                return moved
        return None

    def to_host(self, path: str) -> str:
        moved = _moved(path, self.guest, self.host)
        return path if moved is None else moved

    def uri_to_guest(self, uri: str) -> str:
        return self._uri(uri, to_guest=True)

    def uri_to_host(self, uri: str) -> str:
        return self._uri(uri, to_guest=False)

    def _uri(self, uri: str, *, to_guest: bool) -> str:
        """A file: URI; what follows the path, such as #L10, stays."""
        if uri[:5].lower() != "file:":
            return uri
        try:
            parts = urlsplit(uri)
            path = unquote(parts.path, errors="strict")
        except ValueError:
            return uri
        if parts.netloc not in ("", "localhost"):
            return uri
        moved = self.to_guest(path) if to_guest else self.to_host(path)
        if moved == path:
            return uri
        return urlunsplit(parts._replace(path=quote(moved, safe=_UNQUOTED)))


def _moved(path: str, old: str, new: str) -> str | None:
    """`path` below `new` if it is `old` or below it."""
    if not path.startswith("/") or "\0" in path:
        return None
    whole = posixpath.normpath("/" + path.lstrip("/"))
    if whole == old:
        return new
    below = old if old == "/" else f"{old}/"
    if not whole.startswith(below):
        return None
    # What is below is given as it is written: a slash at the end may mean something.
    rest = whole[len(below) :] + ("/" if path.endswith("/") else "")
    return posixpath.join(new, rest)
