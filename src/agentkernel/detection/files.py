"""A project's files as detection sees them: few, small, and hostile.

A project was cloned from somewhere. So a file is read by a name of our own, without following any
link, at most 64 KiB of it; what is larger, no regular file or not text is as good as absent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from itertools import islice
from typing import Protocol

MAX_BYTES = 64 << 10
MAX_NAMES = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ProjectFiles(Protocol):
    """What detection asks of a project, wherever it is."""

    def names(self) -> frozenset[str]:
        """What lies in the top directory; of a huge one the first few thousand."""

    def read(self, path: str) -> str | None:
        """A small text file; None: there is none that we read. `path` is relative."""

    def head(self, path: str, size: int) -> bytes:
        """The beginning of a file, empty if there is none that we read."""


class LocalFiles:
    """A directory of this machine."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._names: frozenset[str] | None = None

    def names(self) -> frozenset[str]:
        if self._names is None:
            try:
                with os.scandir(self.directory) as entries:
                    self._names = frozenset(entry.name for entry in islice(entries, MAX_NAMES))
            except (OSError, ValueError):
                self._names = frozenset()
        return self._names

    def read(self, path: str) -> str | None:
        data = self._bytes(path, MAX_BYTES + 1)
        return None if data is None or len(data) > MAX_BYTES else _text(data)

    def head(self, path: str, size: int) -> bytes:
        return self._bytes(path, size) or b""

    def _bytes(self, path: str, size: int) -> bytes | None:
        *parents, name = path.split("/")
        if "" in parents or ".." in (*parents, name) or not name:
            return None
        try:
            # The directory itself is the user's word; what lies in it is not.
            fd = os.open(self.directory, _DIRECTORY & ~os.O_NOFOLLOW)
        except (OSError, ValueError):
            return None
        try:
            for parent in parents:
                below = os.open(parent, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = below
            file = os.open(name, _FILE, dir_fd=fd)
        except (OSError, ValueError):
            return None
        finally:
            os.close(fd)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            return _up_to(file, size)
        except OSError:
            return None
        finally:
            os.close(file)


class GivenFiles:
    """Files that somebody has read already, as out of a sandbox."""

    def __init__(self, files: Mapping[str, bytes], names: frozenset[str] = frozenset()) -> None:
        self._files = files
        self._names = names | {path for path in files if "/" not in path}

    def names(self) -> frozenset[str]:
        return self._names

    def read(self, path: str) -> str | None:
        data = self._files.get(path)
        return None if data is None or len(data) > MAX_BYTES else _text(data)

    def head(self, path: str, size: int) -> bytes:
        return self._files.get(path, b"")[:size]


def _up_to(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := os.read(fd, size - len(data))):
        data += part
    return data


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.removeprefix("\ufeff")
