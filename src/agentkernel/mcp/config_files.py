"""Other programs' configuration files, changed without harm.

The new content replaces the old one at once, with the same mode and owner; what was there before is
kept beside it. A link, such as one into a directory of dotfiles, stays a link. A file that its
program writes at the same time is read again, never overwritten with what it was before.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from agentkernel.errors import ConflictError, HostError, InvalidInputError

BACKUP = ".agentkernel-backup"
MAX_BYTES = 32 << 20
_ATTEMPTS = 5

Edit = Callable[[str], str]


class Change(NamedTuple):
    """`path`: the file itself, behind any link. `backup` is None if there was nothing to keep."""

    path: str
    before: str | None
    after: str
    backup: str | None

    @property
    def changed(self) -> bool:
        return self.after != (self.before or "")


class _Read(NamedTuple):
    text: str | None
    status: os.stat_result | None


def change(path: str, edit: Edit, *, dry: bool = False) -> Change:
    """Puts `edit` of its content into the file, which is made if need be. Nothing is written with
    `dry`, or if there is nothing to change, or if `edit` raises."""
    path = os.path.realpath(path)
    for _ in range(_ATTEMPTS):
        read = _read(path)
        after = edit(read.text or "")
        if dry or after == (read.text or ""):
            return Change(path, read.text, after, None)
        if _written(path, read, after):
            backup = None if read.text is None else path + BACKUP
            return Change(path, read.text, after, backup)
    raise ConflictError(
        f"{path} was changed by somebody else again and again",
        hint="end that program and try again",
    )


def _read(path: str) -> _Read:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInputError(f"{path} is not a file")
            if status.st_uid != os.geteuid():
                raise InvalidInputError(f"{path} belongs to somebody else")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return _Read(None, None)
    except OSError as exc:
        raise HostError(f"{path} can't be read: {exc.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InvalidInputError(f"{path} has more than {MAX_BYTES >> 20} MiB")
    try:
        return _Read(data.decode(), status)
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text (UTF-8)") from None


def _written(path: str, read: _Read, after: str) -> bool:
    """False if the file is not what was read any more."""
    directory = os.path.dirname(path)
    new = None
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if read.text is not None:
            _put(path + BACKUP, read.text, read.status)
        new = _temporary(directory, after, read.status)
        if not _same(path, read.status):
            return False
        os.replace(new, path)
        new = None
        return True
    except OSError as exc:
        raise HostError(f"{path} can't be written: {exc.strerror}") from None
    finally:
        if new is not None:
            with contextlib.suppress(OSError):
                os.unlink(new)


def _put(path: str, text: str, status: os.stat_result | None) -> None:
    os.replace(_temporary(os.path.dirname(path), text, status), path)


def _temporary(directory: str, text: str, status: os.stat_result | None) -> str:
    """A new file nobody else can have made, on disk when this returns."""
    fd, name = tempfile.mkstemp(prefix=".agentkernel-", dir=directory)
    with open(fd, "wb") as file:
        if status is not None:
            os.fchmod(fd, stat.S_IMODE(status.st_mode))
            with contextlib.suppress(PermissionError):  # a group that we are not in
                os.fchown(fd, -1, status.st_gid)
        file.write(text.encode())
        file.flush()
        os.fsync(fd)
    return name


def _same(path: str, status: os.stat_result | None) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return status is None
    return status is not None and (now.st_ino, now.st_size, now.st_mtime_ns) == (
        status.st_ino, status.st_size, status.st_mtime_ns
    )  # fmt: skip
