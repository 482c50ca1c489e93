"""Which sandboxes bridges of this user have made, for what, and who has each now.

One file a sandbox, below the state directory: what it is for (a digest), the agent's last session
in it, and a lock that its bridge holds as long as it lives. So the next editor finds the agent that
the last one left, and never one that another still has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from agentkernel.places import make_state_directory

_SUFFIX: Final = ".json"
_MOST: Final = 1 << 16


class Known(msgspec.Struct, frozen=True):
    """What a file says. `made_at` is seconds since 1970: the oldest place is found first."""

    purpose: str
    session: str
    made_at: float


class Place:
    """One sandbox's file, locked."""

    def __init__(self, path: str, file: int, known: Known | None) -> None:
        self.known = known
        self._path = path
        self._file = file

    @property
    def sandbox(self) -> str:
        return os.path.basename(self._path).removesuffix(_SUFFIX)

    def write(self, known: Known) -> None:
        self.known = known
        os.pwrite(self._file, msgspec.json.encode(known).ljust(256), 0)

    def forget(self) -> None:
        """It leads nowhere any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.release()

    def release(self) -> None:
        os.close(self._file)


def take(sandbox: str, state_dir: str | None = None) -> Place | None:
    """None: another bridge has it. `sandbox` is an id."""
    return _open(os.path.join(_directory(state_dir), f"{sandbox}{_SUFFIX}"), os.O_CREAT)


def places_for(purpose: str, state_dir: str | None = None) -> Iterator[Place]:
    """Those that nobody has, the oldest first; each is the caller's, who releases it."""
    directory = _directory(state_dir)
    found: list[tuple[float, str]] = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        known = _read(path) if name.endswith(_SUFFIX) else None
        if known is not None and known.purpose == purpose:
            found.append((known.made_at, path))
    for _, path in sorted(found):
        if (place := _open(path, 0)) is not None:
            yield place


def _directory(state_dir: str | None) -> str:
    directory = os.path.join(make_state_directory(state_dir), "acp")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


def _open(path: str, flags: int) -> Place | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(file).st_ino:
            return Place(path, file, _read(path))
    except OSError:
        pass  # it is another's, or was forgotten between
    os.close(file)
    return None


def _read(path: str) -> Known | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(_MOST), type=Known)
    except (OSError, msgspec.DecodeError):
        return None
