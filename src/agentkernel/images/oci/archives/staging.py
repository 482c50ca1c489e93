"""The files of an archive, written down as they come, with their digests.

Which of them are parts of images only documents can say that may come last, so every file is kept
until then, under a number: no name of the archive's making ever becomes a path. What must hold: at
most LIMITS of files and bytes are written, and a disk is never filled by it.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from agentkernel.errors import GuestFileTooLargeError, ImageInvalidError, InvalidInputError
from agentkernel.images.oci.archives.decompressing import Decompressor
from agentkernel.images.oci.model import MAX_DOCUMENT
from agentkernel.space import require_space
from agentkernel.texts import printable
from agentkernel.trees.entries import FileType, TreeEntry
from agentkernel.trees.tar_reader import TarReader

MAX_FILES: Final = 1 << 14
MAX_BYTES: Final = 1 << 38
# How often it is looked at how much of the disk is left.
_LOOK_BYTES: Final = 64 << 20
_HEAD_BYTES: Final = 8
# A link may lead to a link; those of `docker save` lead to files.
_MAX_LINKS: Final = 8


@dataclass(frozen=True)
class StagedFile:
    """`head`: its first bytes."""

    path: Path
    size: int
    digest: str
    head: bytes


class Staging:
    """Feed it an archive, compressed or not, then `finish`; then files are found by their names.
    Raises ImageInvalidError, ResourceExhaustedError."""

    def __init__(
        self, directory: Path, *, limit_bytes: int = MAX_BYTES, limit_files: int = MAX_FILES
    ) -> None:
        self._directory = directory
        self._decompressor = Decompressor()
        self._reader = TarReader(limit_bytes=limit_bytes, limit_files=limit_files)
        self._files: dict[str, StagedFile] = {}
        self._links: dict[str, str] = {}
        self._current: _Writing | None = None
        self._unlooked = _LOOK_BYTES

    def feed(self, data: bytes) -> None:
        for piece in self._decompressor.feed(data):
            self._untar(piece)

    def finish(self) -> None:
        for piece in self._decompressor.finish():
            self._untar(piece)
        try:
            self._reader.finish()
        except InvalidInputError as error:
            raise _bad(error) from None

    def close(self) -> None:
        if self._current is not None:
            self._current.file.close()
            self._current = None

    def find(self, name: str) -> StagedFile | None:
        """The file of exactly this name, or that a link of this name leads to."""
        for _ in range(_MAX_LINKS):
            if name in self._files:
                return self._files[name]
            target = self._links.get(name)
            if target is None or target.startswith("/"):
                return None
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        return None

    def read(self, name: str) -> bytes | None:
        """A document, which is small."""
        found = self.find(name)
        if found is None:
            return None
        if found.size > MAX_DOCUMENT:
            raise ImageInvalidError(
                f"{printable(name)} in the archive has more than {MAX_DOCUMENT >> 20} MiB"
            )
        return found.path.read_bytes()

    def _untar(self, data: bytes) -> None:
        try:
            for part in self._reader.feed(data):
                if isinstance(part, TreeEntry):
                    self._begin(part)
                else:
                    self._write(part)
        except (InvalidInputError, GuestFileTooLargeError) as error:
            raise _bad(error) from None

    def _begin(self, entry: TreeEntry) -> None:
        if entry.type is FileType.DIRECTORY:
            return
        if entry.path in self._files or entry.path in self._links:
            raise ImageInvalidError(f"the archive has {printable(entry.path)} twice")
        if entry.type is FileType.LINK:
            self._links[entry.path] = entry.target
            return
        path = self._directory / str(len(self._files))
        # Its place is taken by what is known of it at its end.
        self._files[entry.path] = StagedFile(path, 0, "", b"")
        self._current = _Writing(entry, path)
        if not entry.size:
            self._end()

    def _write(self, data: bytes) -> None:
        assert self._current is not None
        self._unlooked += len(data)
        if self._unlooked >= _LOOK_BYTES:
            self._unlooked = 0
            require_space(self._directory)
        self._current.write(data)
        if not self._current.left:
            self._end()

    def _end(self) -> None:
        assert self._current is not None
        done, self._current = self._current, None
        self._files[done.entry.path] = done.end()


class _Writing:
    def __init__(self, entry: TreeEntry, path: Path) -> None:
        self.entry = entry
        self.left = entry.size
        self.file: IO[bytes] = open(path, "xb", buffering=0)  # noqa: SIM115 (closed at its end)
        self._path = path
        self._hash = hashlib.sha256()
        self._head = b""

    def write(self, data: bytes) -> None:
        if len(self._head) < _HEAD_BYTES:
            self._head = (self._head + data)[:_HEAD_BYTES]
        self._hash.update(data)
        self.left -= len(data)
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) :]

    def end(self) -> StagedFile:
        self.file.close()
        digest = f"sha256:{self._hash.hexdigest()}"
        return StagedFile(self._path, self.entry.size, digest, self._head)


def _bad(error: InvalidInputError | GuestFileTooLargeError) -> ImageInvalidError:
    if isinstance(error, GuestFileTooLargeError):
        why = error.message.removeprefix("the tree ")
        return ImageInvalidError(f"the archive {why}")
    why = error.message.removeprefix("the archive can't be unpacked: ")
    return ImageInvalidError(f"the archive can't be read: {why}", hint=error.hint)
