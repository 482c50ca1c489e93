"""Room on the disk: what needs some is refused before the disk is full, so that what is there can
go on: rows are written, sandboxes end, files are removed.

    require_space(path, 3 << 30)        before 3 GiB are written below `path`

Light: it is asked before every create, and while something long is written.
"""

from __future__ import annotations

import os

from agentkernel.errors import HostError, ResourceExhaustedError
from agentkernel.quantities import short_size

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Final

HINT: Final = (
    "`agentkernel system prune` removes what nobody needs, `agentkernel system df` shows it"
)
# Unless the user says otherwise, the smaller of the two stays free.
_DEFAULT_BYTES: Final = 1 << 30
_DEFAULT_SHARE: Final = 20
LOOK_BYTES: Final = 16 << 20

_chosen: int | None = None


class Room:
    """A file system's bytes: all, those that are free for us, those of them that stay free."""

    __slots__ = ("free", "reserve", "total")

    def __init__(self, total: int, free: int, reserve: int) -> None:
        self.total = total
        self.free = free
        self.reserve = reserve

    @property
    def is_short(self) -> bool:
        return self.free < self.reserve


def set_reserve(size: int | None) -> None:
    """For this process: as its user's configuration says (daemon.disk_reserve). None: default."""
    global _chosen
    _chosen = size


def room_at(path: str | os.PathLike[str]) -> Room:
    """Of the file system that has `path`, or is to have it."""
    place = os.path.abspath(path)
    while True:
        try:
            found = os.statvfs(place)
            break
        except (FileNotFoundError, NotADirectoryError):
            if place == "/":
                raise
            place = os.path.dirname(place)
        except OSError as exc:
            raise HostError(f"{place} can't be looked at: {exc.strerror}") from None
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    reserve = min(_DEFAULT_BYTES, total // _DEFAULT_SHARE) if _chosen is None else _chosen
    return Room(total, free, reserve)


def require_space(path: str | os.PathLike[str], size: int = 0) -> None:
    """Raises ResourceExhaustedError unless `size` bytes can be written there and the reserve stays.

    One that says 0 does not know how much it will be, and asks again on the way."""
    room = room_at(path)
    if room.free - size >= room.reserve:
        return
    needed = f"{short_size(size)} are needed and " if size else ""
    raise ResourceExhaustedError(
        f"the disk is nearly full: {short_size(room.free)} are free, {needed}"
        f"{short_size(room.reserve)} must stay free",
        hint=f"{HINT}; or lower daemon.disk_reserve",
        free_bytes=room.free,
        reserve_bytes=room.reserve,
        needed_bytes=size,
    )


class Watched:
    """For one who writes and does not know how much: `add` what was written. Now and then it
    raises as `require_space` does."""

    __slots__ = ("_path", "_unlooked")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._unlooked = 0

    def add(self, size: int) -> None:
        self._unlooked += size
        if self._unlooked >= LOOK_BYTES:
            self._unlooked = 0
            require_space(self._path)
