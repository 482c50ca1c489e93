"""COPY and ADD: which files go where, worked out on names alone.

What must hold: every path that comes out is one of the image as it is, with all links on the way
followed there; no source is anything but a name of the context, the stage or the image it is of.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentkernel.errors import InvalidInputError
from agentkernel.images.building.config import joined
from agentkernel.images.building.tree import Entry, Node, Tree
from agentkernel.trees.ignoring import to_expression

_MAGIC = re.compile(r"[*?\[\\]")
_MAX_ITEMS = 2_000_000


@dataclass(frozen=True)
class Item:
    """A name of the new layer. `source`: where it comes from, for messages."""

    path: str
    entry: Entry
    source: str = ""


@dataclass(frozen=True)
class Archive:
    """An archive's members, and what stands for them in the cache's key."""

    members: Sequence[tuple[str, Entry]]
    key: bytes


# What ADD unpacks a file as; None: it is copied as it is.
Unpack = Callable[[Entry], Archive | None]


@dataclass
class Copying:
    """One COPY on its way. `ids`: --chown; `mode`: --chmod."""

    source: Tree
    image: Tree
    ids: tuple[int, int] | None = None
    mode: int | None = None
    unpack: Unpack | None = None
    now: int = 0
    what: str = "the context"
    items: dict[str, Item] = field(default_factory=dict)
    keys: list[object] = field(default_factory=list)

    def carry_out(
        self, sources: Sequence[str], files: Sequence[tuple[str, bytes]], target: str, workdir: str
    ) -> None:
        """`files`: those written in the Dockerfile itself. Raises InvalidInputError."""
        found = [match for source in sources for match in self._matches(source)]
        where, node = self.image.resolve(joined(workdir, target))
        self._check_parents(where)
        is_directory = (
            target.endswith(("/", "/.", "/.."))
            or target in (".", "..")
            or len(found) + len(files) > 1
            or (node is not None and node.is_directory)
        )
        if node is not None and not node.is_directory and is_directory:
            raise InvalidInputError(f"{where} is a file, and what is copied needs a directory")
        for path, one in found:
            self._one(path, one, where, is_directory)
        for name, content in files:
            entry = Entry("file", 0o644, mtime=self.now, size=len(content), content=content)
            place = posixpath.join(where, posixpath.basename(name)) if is_directory else where
            self._put(place, entry, name, key=content)

    def _one(self, path: str, node: Node, where: str, is_directory: bool) -> None:
        entry = node.entry
        if entry.kind == "directory":
            if not is_directory and (there := self.image.get(where)) and not there.is_directory:
                raise InvalidInputError(f"{where} is a file, and {path} a directory")
            self._directory(where)
            self._all(self.source.below(node), where, path)
            return
        if entry.kind != "file":
            raise InvalidInputError(f"{path} of {self.what} is no file and no directory")
        archive = self.unpack(entry) if self.unpack else None
        if archive is not None:
            self._directory(where)
            self.keys.append((where, archive.key))
            self._all(iter(archive.members), where, path, counted=False)
            return
        name = posixpath.basename(path)
        self._put(posixpath.join(where, name) if is_directory else where, entry, path)

    def _all(
        self, below: Iterator[tuple[str, Entry]], where: str, source: str, *, counted: bool = True
    ) -> None:
        """What is in a directory, or in an archive, below `where`."""
        places: dict[str, str] = {"": where}
        closed: set[str] = set()  # what is no directory, of an archive that may say otherwise
        for path, entry in below:
            above, _, name = path.rpartition("/")
            if any(one in closed for one in _ancestors(above)):
                raise InvalidInputError(f"{path[:200]} of {source} runs through a link or a file")
            place = self._place(above, places)
            here = f"{place.rstrip('/')}/{name}"
            if entry.kind == "directory":
                there, node = self.image.resolve(here)
                if node is not None and node.is_directory and there != here:
                    places[path] = there  # a link of the image to a directory stays one
                    continue
                places[path] = here
            elif entry.kind == "other":
                raise InvalidInputError(f"{path[:200]} of {source} is no file, directory or link")
            elif not counted:
                closed.add(path)
            self._put(here, entry, f"{source}/{path}", counted=counted)

    def _place(self, above: str, places: dict[str, str]) -> str:
        """Where the directory `above` of the source is in the image."""
        if above not in places:
            parent, _, name = above.rpartition("/")
            here = f"{self._place(parent, places).rstrip('/')}/{name}"
            there, node = self.image.resolve(here)
            places[above] = there if node is not None and node.is_directory else here
            self._directory(places[above])
        return places[above]

    def _put(
        self, path: str, entry: Entry, source: str, *, key: bytes = b"", counted: bool = True
    ) -> None:
        there = self.image.get(path)
        if there is not None and there.is_directory and entry.kind != "directory":
            raise InvalidInputError(f"{path} is a directory, and {source} is not")
        if self.ids is not None:
            entry = replace(entry, uid=self.ids[0], gid=self.ids[1])
        if self.mode is not None and entry.kind != "link":
            entry = replace(entry, mode=self.mode)
        self._parents(path)
        self._add(Item(path, entry, source))
        if counted:
            known = key or entry.digest or repr(entry.content).encode()
            self.keys.append(
                (path, entry.kind, entry.mode, entry.uid, entry.gid, entry.link, known)
            )

    def keep_directory(self, path: str) -> None:
        """A directory that is to be there, if nothing is."""
        where, node = self.image.resolve(path)
        if node is None:
            ids, self.ids = self.ids, None
            self._directory(where)
            self.ids = ids

    def _directory(self, path: str) -> None:
        """There is a directory at `path`, with the image's own rights or, where it is new, ours."""
        if path == "/" or path in self.items:
            return
        self._parents(path)
        node = self.image.get(path)
        if node is not None and node.is_directory:
            entry = node.entry
        else:
            uid, gid = self.ids or (0, 0)
            entry = Entry("directory", 0o755, uid, gid, self.now)
        self._add(Item(path, entry))

    def _parents(self, path: str) -> None:
        above = posixpath.dirname(path)
        if above not in ("", "/"):
            self._directory(above)

    def _add(self, item: Item) -> None:
        if len(self.items) >= _MAX_ITEMS:
            raise InvalidInputError(f"more than {_MAX_ITEMS} files at once")
        self.items[item.path] = item

    def _check_parents(self, where: str) -> None:
        above = posixpath.dirname(where)
        while above not in ("", "/"):
            node = self.image.get(above)
            if node is not None and not node.is_directory:
                raise InvalidInputError(f"{above} is no directory")
            above = posixpath.dirname(above)

    def _matches(self, pattern: str) -> list[tuple[str, Node]]:
        """The names that a source stands for, each with what it leads to."""
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        depth = 0
        for part in parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                raise InvalidInputError(
                    f"{pattern[:200]} leads out of {self.what}",
                    hint="build in a directory that holds all that is copied",
                )
        paths = [""]
        for part in parts:
            if _MAGIC.search(part):
                paths = [one for path in paths for one in self._names(path, part, pattern)]
            else:
                paths = [f"{path}/{part}" for path in paths]
        found = []
        for path in paths:
            _, node = self.source.resolve(path)
            if node is not None:
                found.append((path or "/", node))
        if not found:
            raise InvalidInputError(
                f"{pattern[:200]} is not in {self.what}",
                hint="is it spelled so, and does .dockerignore leave it out?"
                if self.what == "the context"
                else None,
            )
        return found

    def _names(self, path: str, part: str, pattern: str) -> Iterator[str]:
        try:
            expression = re.compile(to_expression(part, any_depth=False) + r"\Z", re.DOTALL)
        except (re.error, ValueError):
            raise InvalidInputError(f"{pattern[:200]} is no pattern") from None
        _, node = self.source.resolve(path)
        for name in sorted(node.children) if node is not None and node.is_directory else ():
            if expression.match(name):
                yield f"{path}/{name}"


def _ancestors(path: str) -> Iterator[str]:
    """`path` and all that is above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]
