"""A build's context as it comes from a client: a tar, kept as one file, and the names in it.

It is never unpacked: what COPY takes of it is looked up among its names (`tree`), and its bytes are
read from where they stand in that file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from agentkernel.images.building.tree import Entry, Tree
from agentkernel.space import Watched
from agentkernel.trees.entries import DEFAULT_TREE_BYTES, DEFAULT_TREE_FILES, FileType, TreeEntry
from agentkernel.trees.tar_reader import TarReader

_CHUNK = 1 << 20


class Context:
    """`feed` it the archive, then `finish`. `file` is where the bytes of its files go: an unnamed
    one, which is gone with whoever holds it. `space`: whether there is room for them."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
        space: Watched | None = None,
    ) -> None:
        self.tree = Tree()
        self._space = space
        self._file = file
        self._reader = TarReader(limit_bytes=limit_bytes, limit_files=limit_files)
        self._at = 0
        self._path = ""
        self._entry: Entry | None = None
        self._left = 0
        self._hash = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """Raises InvalidInputError for what is no such archive, or too large, and
        ResourceExhaustedError."""
        for part in self._reader.feed(data):
            if isinstance(part, TreeEntry):
                self._begin(part)
            else:
                if self._space is not None:
                    self._space.add(len(part))
                self._file.write(part)
                self._hash.update(part)
                self._at += len(part)
                self._left -= len(part)
                if not self._left:
                    self._complete()

    def finish(self) -> None:
        self._reader.finish()
        self._file.flush()

    def _begin(self, part: TreeEntry) -> None:
        kinds = {FileType.DIRECTORY: "directory", FileType.LINK: "link"}
        kind = kinds.get(part.type, "file")
        self._path = part.path
        self._entry = Entry(
            kind,  # type: ignore[arg-type]
            mode=0o777 if kind == "link" else part.mode & 0o777,
            mtime=part.mtime_ms // 1000,
            size=part.size if kind == "file" else 0,
            link=part.target,
            content=self._at,
        )
        self._left = self._entry.size
        self._hash = hashlib.sha256()
        if not self._left:
            self._complete()

    def _complete(self) -> None:
        if self._entry is not None:
            self.tree.put(self._path, replace(self._entry, digest=self._hash.digest()))
        self._entry = None

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """A file's content."""
        if isinstance(entry.content, bytes):
            yield entry.content
            return
        assert isinstance(entry.content, int)
        position, left = entry.content, entry.size
        while left:
            self._file.seek(position)
            piece = self._file.read(min(left, _CHUNK))
            if not piece:
                raise OSError("the context's file is shorter than it was")
            position += len(piece)
            left -= len(piece)
            yield piece

    def read(self, path: str, most: int) -> bytes | None:
        """One file, by its name; None: it is not there, or is no file, or longer."""
        _, node = self.tree.resolve(path)
        if node is None or node.entry.kind != "file" or node.entry.size > most:
            return None
        return b"".join(self.pieces(node.entry))

    def take(self, path: str, most: int) -> bytes | None:
        """The same; from now on it is no part of the context."""
        content = self.read(path, most)
        self.tree.remove(path)
        return content

    def open(self, entry: Entry) -> BinaryIO:
        """A file of it, to be read as one."""
        return _Part(self._file, entry)  # type: ignore[return-value]


class _Part:
    """Some bytes of a file as a file."""

    def __init__(self, file: BinaryIO, entry: Entry) -> None:
        assert isinstance(entry.content, int)
        self._file = file
        self._start = entry.content
        self._size = entry.size
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        self._file.seek(self._start + self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._at, 2: self._size}[whence]
        self._at = max(0, base + position)
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return False
