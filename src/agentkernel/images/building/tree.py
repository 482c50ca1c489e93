"""A file system that is on no disk: the names of an image or of a build's context.

Paths are looked up here as a process whose root this is would see them. So no link leads anywhere
but to another name of the same tree, and files of the host are out of reach whatever is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentkernel.errors import InvalidInputError

MAX_LINKS = 40
Kind = Literal["directory", "file", "link", "other"]
# Where a file's bytes are: themselves, or at a place that the tree's owner knows.
Content = bytes | tuple[str, str] | int


@dataclass(frozen=True, slots=True)
class Entry:
    """`digest`: of a file's content, where it is known."""

    kind: Kind
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    link: str = ""
    content: Content = b""
    digest: bytes = b""


_PLAIN = Entry("directory")


@dataclass(slots=True)
class Node:
    entry: Entry
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        return self.entry.kind == "directory"


class Tree:
    """See the module. Paths are from the root, with or without a slash before them."""

    def __init__(self) -> None:
        self.root = Node(_PLAIN)

    def put(self, path: str, entry: Entry) -> None:
        """What is above becomes a directory, whatever it was. A directory keeps what is in it."""
        *parents, name = _parts(path) or [""]
        if not name:
            if entry.kind == "directory":
                self.root.entry = entry
            return
        node = self.root
        for parent in parents:
            below = node.children.get(parent)
            if below is None or not below.is_directory:
                below = node.children[parent] = Node(_PLAIN)
            node = below
        old = node.children.get(name)
        if old is not None and old.is_directory and entry.kind == "directory":
            old.entry = entry
        else:
            node.children[name] = Node(entry)

    def remove(self, path: str) -> None:
        *parents, name = _parts(path) or [""]
        node = self._walk(parents)
        if node is not None:
            node.children.pop(name, None)

    def clear(self, path: str) -> None:
        """Of a directory nothing is left but itself."""
        node = self._walk(_parts(path))
        if node is not None:
            node.children.clear()

    def get(self, path: str) -> Node | None:
        """By its very name: no link is followed."""
        return self._walk(_parts(path))

    def _walk(self, parts: list[str]) -> Node | None:
        node = self.root
        for part in parts:
            below = node.children.get(part)
            if below is None:
                return None
            node = below
        return node

    def resolve(self, path: str, *, follows_last: bool = True) -> tuple[str, Node | None]:
        """Where `path` leads after all links, and what is there; None: nothing, and the path says
        where it would be. Raises InvalidInputError for links without an end."""
        pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        done: list[tuple[str, Node | None]] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                if done:
                    done.pop()
                continue
            above = done[-1][1] if done else self.root
            node = above.children.get(part) if above is not None else None
            is_last = not pending
            if node is not None and node.entry.kind == "link" and (follows_last or not is_last):
                links += 1
                if links > MAX_LINKS:
                    raise InvalidInputError(f"{path[:200]}: links without an end")
                target = node.entry.link
                if target.startswith("/"):
                    done = []
                pending += [
                    piece for piece in reversed(target.split("/")) if piece not in ("", ".")
                ]
                continue
            done.append((part, node))
        where = "/" + "/".join(part for part, _ in done)
        return where, done[-1][1] if done else self.root

    def below(self, node: Node) -> Iterator[tuple[str, Entry]]:
        """All that is in a directory, each with its path from there, a directory before what is in
        it, by name."""
        pending = [(name, child) for name, child in sorted(node.children.items(), reverse=True)]
        while pending:
            path, here = pending.pop()
            yield path, here.entry
            pending += [
                (f"{path}/{name}", child)
                for name, child in sorted(here.children.items(), reverse=True)
            ]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
