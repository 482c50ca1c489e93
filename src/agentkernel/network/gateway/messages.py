"""What the daemon and the gateway say to each other.

Frames on a unix stream socket: u32 little-endian length, then one MessagePack map of a message
below. Descriptors travel with the first byte of their frame. A call has a serial number, and its
answer the same. Both ends come from one build; `GENERATION` tells a gateway of another one, which
is asked to leave.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Literal

import msgspec

from agentkernel.network.policy.model import NetworkSetting, Operator


def _fingerprint() -> int:
    """Of the code itself: a gateway that goes on after an upgrade is to be replaced, or what the
    upgrade mends would not be mended."""
    total = 0
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        total = zlib.crc32(path.read_bytes(), total)
    return total


GENERATION = _fingerprint()
FRAME_BYTES = 16 << 20
SOCKET_NAME = "gateway.sock"
LOCK_NAME = "gateway.lock"


class Hello(msgspec.Struct, tag="hello", frozen=True, kw_only=True):
    """First of all, from the daemon. Answered by Welcome."""

    serial: int
    generation: int
    operator: Operator


class Register(msgspec.Struct, tag="register", frozen=True, kw_only=True):
    """A sandbox, with three descriptors: the listening TCP socket and the UDP socket for names,
    both made in its namespace, and a pidfd whose end is the sandbox's. `names`: the file that keeps
    which name has which address. Registering one that is known replaces its descriptors. `owner`:
    whose secrets must not leave it, bound or not."""

    serial: int
    id: str
    owner: str = ""
    setting: NetworkSetting
    names: str


class Update(msgspec.Struct, tag="update", frozen=True, kw_only=True):
    """Another setting. Flows that it does not allow any more are closed before the answer."""

    serial: int
    id: str
    setting: NetworkSetting


class Unregister(msgspec.Struct, tag="unregister", frozen=True, kw_only=True):
    serial: int
    id: str


class Secrets(msgspec.Struct, tag="secrets", frozen=True, kw_only=True):
    """Values by reference, instead of all that were said before."""

    serial: int
    values: dict[str, bytes]


class Status(msgspec.Struct, tag="status", frozen=True, kw_only=True):
    """Asks for `Counted`."""

    serial: int
    id: str


class Stop(msgspec.Struct, tag="stop", frozen=True, kw_only=True):
    """Leave: another gateway takes over, or the state goes."""

    serial: int


Call = Hello | Register | Update | Unregister | Secrets | Status | Stop


class Welcome(msgspec.Struct, tag="welcome", frozen=True, kw_only=True):
    serial: int
    generation: int
    pid: int
    sandboxes: tuple[str, ...]


class Done(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    serial: int
    error: str | None = None


class Counted(msgspec.Struct, tag="counted", frozen=True, kw_only=True):
    """One sandbox's traffic so far. Bytes are the guest's: `up` from it, `down` to it."""

    serial: int
    flows: int = 0
    connections: int = 0
    denied: int = 0
    up: int = 0
    down: int = 0
    names: int = 0


Via = Literal["dns", "tcp", "tls", "http", "proxy", "socks"]


class NetworkEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision, or `times` of the same within a second. `kind`: "network.allow",
    "network.deny", "network.secret" (a placeholder was swapped), "network.blocked" (a secret was on
    its way where it must not go), "network.limit" (a cap), "network.fault" (allowed, but the other
    side could not be reached or trusted). `reason` is in words and holds no secret; a path is
    without its query."""

    at: float
    sandbox: str
    kind: str
    via: Via
    host: str
    port: int = 0
    address: str = ""
    method: str = ""
    path: str = ""
    rule: int | None = None
    source: str = ""
    reason: str = ""
    times: int = 1


class Events(msgspec.Struct, tag="events", frozen=True, kw_only=True):
    """Told without being asked. `dropped`: how many there was no room for."""

    events: tuple[NetworkEvent, ...]
    dropped: int = 0


Reply = Welcome | Done | Counted | Events
