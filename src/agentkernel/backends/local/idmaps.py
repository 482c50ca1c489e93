"""Which ids a sandbox has, and which ids of the host stand behind them.

Three situations, decided by who runs us, never by what happens to work:

- root of the machine: a range of 65,536 ids of its own for each sandbox (`IdRanges` hands them
  out). Without a free range there is no sandbox: guest root as host root is not an option.
- a user with subuids: guest root is that user (so files of the user's are root's inside) and all
  other ids are subuids; or, where the image belongs to the subuids, every id is a subuid.
- a user without: one id, which is root *or* `user` inside.

The *outer* map belongs to the namespace that owns the network, the *inner* one to the guest's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.images.model import IdKind

RANGE_SIZE = 65_536
USER_ID = 1000
# No image uses it, nobody is mapped to it by name: agentd's own id where ids are to be had.
AGENT_ID = 65_533

Lines = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class IdMaps:
    """Maps as the kernel takes them: (inside, outside, count). `mode` is the launch plan's."""

    mode: IdKind
    outer_uids: Lines
    outer_gids: Lines
    inner_uids: Lines
    inner_gids: Lines
    agent_id: int
    single_id: int | None = None
    upper_owner: int | None = None
    newuidmap: str = ""
    newgidmap: str = ""

    @property
    def root_owner(self) -> int:
        """The host id behind guest root (or behind the one id there is)."""
        outside = self.inner_uids[0][1]
        for inside, host, count in self.outer_uids:
            if inside <= outside < inside + count:
                return host + outside - inside
        raise AssertionError("a map without its own root")

    @property
    def words(self) -> str:
        match self.mode:
            case "range":
                first = self.outer_uids[0][1]
                return f"a range of its own: host ids {first}-{first + RANGE_SIZE - 1}"
            case "subuid":
                return "the user's subordinate ids, by newuidmap"
            case _:
                return f"one id: {self.single_id} inside, this user outside"


def range_maps(first: int) -> IdMaps:
    identity = ((0, 0, RANGE_SIZE),)
    outer = ((0, first, RANGE_SIZE),)
    return IdMaps("range", outer, outer, identity, identity, agent_id=AGENT_ID)


def single_maps(guest_id: int) -> IdMaps:
    uid, gid = ((0, os.getuid(), 1),), ((0, os.getgid(), 1),)
    inner = ((guest_id, 0, 1),)
    return IdMaps("single", uid, gid, inner, inner, agent_id=guest_id, single_id=guest_id)


def subuid_maps(subuid: int, subgid: int, *, image_owner: int | None) -> IdMaps:
    """Outer: 0 is the user, 1… the subuids. Inner: shifted by one if the image is the subuids'."""
    uids, gids = _outer(os.getuid(), subuid), _outer(os.getgid(), subgid)
    shift = 1 if image_owner == subuid else 0
    # The kernel wants every line of a map inside one line of the map above.
    inner: Lines = ((0, 1, RANGE_SIZE),) if shift else ((0, 0, 1), (1, 1, RANGE_SIZE - 1))
    return IdMaps(
        "subuid",
        uids,
        gids,
        inner,
        inner,
        agent_id=AGENT_ID,
        upper_owner=shift,
        newuidmap=shutil.which("newuidmap") or "",
        newgidmap=shutil.which("newgidmap") or "",
    )


def _outer(own: int, first: int) -> Lines:
    return ((0, own, 1), (1, first, RANGE_SIZE))


def own_maps() -> IdMaps:
    """The ids of whatever a sandbox or an image of this user may have on disk. Root needs none."""
    if is_host_root():
        return range_maps(0)
    subids = find_subids()
    return subuid_maps(*subids, image_owner=None) if subids else single_maps(0)


def is_host_root() -> bool:
    """Root of the machine, who can give away ids; root of some user namespace (a rootless
    container) is a user like others, whatever its number."""
    if os.getuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as lines:
        maps = [tuple(map(int, line.split())) for line in lines]
    return maps == [(0, 0, 0xFFFFFFFF)]


def find_subids() -> tuple[int, int] | None:
    """The user's first subuid and subgid, if there are 65,536 of each and a way to map them."""
    if not (shutil.which("newuidmap") and shutil.which("newgidmap")):
        return None
    uid, gid = _first_of("/etc/subuid"), _first_of("/etc/subgid")
    return None if uid is None or gid is None else (uid, gid)


def _first_of(path: str) -> int | None:
    keys = {str(os.getuid())}
    with contextlib.suppress(KeyError):
        keys.add(pwd.getpwuid(os.getuid()).pw_name)
    for owner, first, count in read_subids(path):
        if owner in keys and count >= RANGE_SIZE:
            return first
    return None


def read_subids(path: str) -> list[tuple[str, int, int]]:
    """Lines of /etc/subuid or /etc/subgid: (owner, first, count)."""
    found = []
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                parts = line.strip().split(":")
                if len(parts) == 3 and _is_number(parts[1]) and _is_number(parts[2]):
                    found.append((parts[0], int(parts[1]), int(parts[2])))
    except OSError:
        pass
    return found


def _is_number(text: str) -> bool:
    """An id in figures; `isdigit` would take ones that `int` does not."""
    return text.isascii() and text.isdecimal() and len(text) <= 10


def guest_uid(user: str) -> int:
    """The id a sandbox's default user has. Names other than the two wait for the guest's passwd."""
    if user == "root":
        return 0
    if user == "user":
        return USER_ID
    if _is_number(user) and int(user) < RANGE_SIZE:
        return int(user)
    raise InvalidInputError(
        f"{user!r} is not a user a sandbox can start as", hint="use root, user, or a number"
    )


def refuse_other_user(default: int, wanted: str) -> UnsupportedError:
    """With one id only, a second user can't exist."""
    return UnsupportedError(
        f"this sandbox has one user id, {default}: no process can run as {wanted!r}",
        hint="give your account subuids (`sudo usermod --add-subuids 100000-165535 --add-subgids "
        "100000-165535 $USER`) or create the sandbox with --user " + wanted,
    )
