"""Files below an open directory, reached name by name and never through a link.

What lies below may be a guest's, who swaps names while we look: so every step opens a directory by
its parent's descriptor, without following links, and what was opened is looked at once more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 18


@contextlib.contextmanager
def opened_parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The directory that holds `path`, and the name in it. Raises OSError."""
    *parents, name = path.split("/")
    fd = os.dup(root)
    try:
        for parent in parents:
            below = os.open(parent, DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd, name
    finally:
        os.close(fd)


def status(root: int, path: str) -> os.stat_result | None:
    """Of the name itself; None: there is none."""
    try:
        with opened_parent(root, path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        if exc.errno == 40:  # ELOOP: a link stands in the way
            return None
        raise


@contextlib.contextmanager
def opened_file(root: int, path: str) -> Iterator[int]:
    """A regular file, to be read. Raises OSError, also for anything else."""
    with opened_parent(root, path) as (parent, name):
        fd = os.open(name, _FILE, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(f"{name} is no file")
        yield fd
    finally:
        os.close(fd)


def read(root: int, path: str, most: int) -> bytes | None:
    """A file's content; None: it has more than `most` bytes."""
    with opened_file(root, path) as fd:
        content = bytearray()
        while part := os.read(fd, _CHUNK):
            content += part
            if len(content) > most:
                return None
    return bytes(content)


def link_target(root: int, path: str) -> str:
    with opened_parent(root, path) as (parent, name):
        return os.readlink(name, dir_fd=parent)


def same_content(one: int, other: int, path: str) -> bool:
    """Of two regular files of one name below two directories."""
    with opened_file(one, path) as left, opened_file(other, path) as right:
        while True:
            here, there = os.read(left, _CHUNK), os.read(right, _CHUNK)
            if here != there:
                return False
            if not here:
                return True
