"""The contract every engine keeps, with all of its prose; engines themselves stay terse.

A backend turns a `Blueprint` into a running sandbox whose PID 1 is agentd, and says truly how
strongly that sandbox is isolated. What it can't do it refuses with a typed error before anything
exists: there is no silent fallback to something weaker.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from agentkernel.errors import UnsupportedError
from agentkernel.guest.channel import GuestChannel
from agentkernel.images.model import RootFilesystem
from agentkernel.images.view import View
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.security.profiles import Limits
from agentkernel.workspaces.model import Workspace

Progress = Callable[[str], None]
NOT_ENFORCED = "not enforced"
LIMITS = ("memory", "cpus", "pids", "disk", "open files")
THROUGH_GATEWAY = "through the gateway: no interface but loopback"
"""What the effective line `network` says of a sandbox with a way out."""
NOT_AVAILABLE = "not available"
"""Begins `enforced_by` of that line in a sandbox that should have one and has not."""


NEW_VOLUME = "made with this sandbox"
"""Begins `enforced_by` of the line `volume` for one that was not there before."""


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True):
    """A volume and where the sandbox has it. `quota_bytes`: it is a disk of that size. `exclusive`:
    no other sandbox runs with it. `is_new`: it was made for this sandbox."""

    id: str
    name: str
    path: str
    read_only: bool = False
    quota_bytes: int | None = None
    exclusive: bool = False
    is_new: bool = False


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an engine needs, expanded: no profile names, no defaults left to fill in.

    `explicit` names the limits somebody asked for: one of those that can't be enforced fails the
    create (UnenforceableError); another is reported in `Sandbox.effective` and left. `owned`: the
    sandbox ends with the process that made it; any other outlives it and can be found again.
    `ephemeral`: its files need not outlive its processes, so a bound for them may be memory.
    `host_env`: the user's variables that say where toolchains are; none: this process's own count.
    `network`: it gets a way out through the gateway, with this inside; None: it has loopback only,
    and `without_network` says why if its profile gives it more. `workspace`: a directory of
    the host that it has. `volumes`: those are there, and nobody else has an exclusive one. `image`:
    `host`, a directory, or a reference with a digest of an image that is stored here. `entrypoint`:
    instead of the image's own. `building`: what it changes becomes a layer, so /tmp and /run are
    the image's own.
    """

    id: str
    image: str
    user: str
    toolchains: bool
    capabilities: frozenset[str]
    seccomp: str
    nested_userns: bool
    limits: Limits
    explicit: frozenset[str] = frozenset()
    owned: bool
    hostname: str
    profile: str
    ephemeral: bool = True
    host_env: dict[str, str] = {}
    network: NetworkSetup | None = None
    without_network: str = ""
    workspace: Workspace | None = None
    volumes: tuple[VolumeMount, ...] = ()
    entrypoint: list[str] | None = None
    building: bool = False


class EffectiveLine(msgspec.Struct, frozen=True):
    """One line of what really holds: `what`, its `value`, and what enforces it.

    Of a limit that does not hold, `enforced_by` begins with NOT_ENFORCED and says why.
    """

    what: str
    value: str
    enforced_by: str


def notices(lines: Iterable[EffectiveLine]) -> list[str]:
    """Sentences for whoever made the sandbox: the limits and the network that it should have and
    has not, and the volumes that came to be with it."""
    lines = list(lines)
    return (
        [
            f"{line.what} {line.value} is {line.enforced_by}"
            for line in lines
            if line.enforced_by.startswith(NOT_ENFORCED) and line.what in LIMITS
        ]
        + [
            f"the network of its profile is {line.enforced_by}"
            for line in lines
            if line.enforced_by.startswith(NOT_AVAILABLE) and line.what == "network"
        ]
        + [
            f"the volume {line.value} is new: it stays when the sandbox goes"
            for line in lines
            if line.enforced_by.startswith(NEW_VOLUME) and line.what == "volume"
        ]
    )


class SandboxUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox has used since it was started. None: not knowable here, never a guess.

    `counted_by` says what counted the time and the memory. `throttled_seconds`: how long processes
    had to wait because of the limit of cpus. `disk_bytes`: what its files take now, where they have
    a bound.
    """

    counted_by: str
    cpu_seconds: float | None = None
    throttled_seconds: float | None = None
    memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None


class LimitHit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that was in the way: which, how often since the last look, and that in words."""

    limit: str
    times: int
    words: str


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do at all; what it can do on this machine a try tells. What is missing
    here is refused with UnsupportedError, an explicit limit that is none of `limits` with
    UnenforceableError. `pid1_guarded`: a guest can't end its own sandbox by a signal to PID 1."""

    pty: bool = True
    kept: bool = True
    pause: bool = False
    memory_snapshot: bool = False
    network: str = "none"
    pid1_guarded: bool = True
    limits: tuple[str, ...] = ()


@dataclass
class NetworkSockets:
    """Made in a sandbox's network namespace, held on the host: every TCP connection of the guest
    comes to `tcp` (SO_ORIGINAL_DST says where it was to go), every datagram to port 53 to `names`.
    `rules` is a netlink socket of the namespace, to read what its rules have counted."""

    tcp: socket.socket
    names: socket.socket
    rules: socket.socket

    def close(self) -> None:
        for sock in (self.tcp, self.names, self.rules):
            sock.close()


class Sandbox(Protocol):
    """A running sandbox."""

    id: str
    backend: str
    """The name of the engine that made it."""
    channel: GuestChannel
    blueprint: Blueprint
    pid: int
    """The host's number of the process whose end is the sandbox's; all others are below it."""

    @property
    def root(self) -> RootFilesystem:
        """The image as it was resolved."""

    @property
    def effective(self) -> tuple[EffectiveLine, ...]:
        """What holds in this sandbox, line by line."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process starts from, before the caller's own variables."""

    def check_user(self, user: str) -> None:
        """Raises UnsupportedError, with what mends it, for a user that can't exist in here."""

    async def open_network(self) -> NetworkSockets:
        """The sockets of its way out: those that were made with it, at the first call after
        `create` or `start`; later, and after `reattach`, new ones, made by entering its namespace,
        with the rules if they are missing. They are the caller's to close. Raises HostError where
        the machine can't; then it has no network, never an open one."""

    async def network_refusals(self) -> dict[str, int]:
        """Packets that the kernel refused inside, by kind: udp, icmp, ipv6, other, limit."""

    def was_out_of_memory(self) -> bool:
        """True if the kernel killed something in here for lack of memory since the last call."""

    async def usage(self) -> SandboxUsage | None:
        """What it has used so far; after its end, what it used in all. None: nobody knows."""

    def limit_hits(self) -> list[LimitHit]:
        """Which limits the kernel enforced on it since the last call, as far as it counts that."""

    def lives(self) -> bool:
        """False once that process has ended, whoever ended it."""

    async def stop(self, grace_seconds: float = 0.0) -> None:
        """Ends every process and keeps the files. With a grace, processes are asked first.
        Idempotent."""

    async def destroy(self) -> None:
        """Ends every process and leaves nothing behind. Idempotent; safe at any moment."""


@dataclass(frozen=True)
class WorkspaceFiles:
    """Where on the host the changes of a copy-on-write workspace are. `upper`: None if they are in
    memory or on a disk of the sandbox's own; then `view` can be made, a directory. `hidden`: a
    directory with a mark for each file that the guest was not shown; `applied`: a file of ours;
    `base`: a directory of ours, how the project was; `project`: the directory below the changes. Of
    a sandbox that was not started since its changes were discarded only the last is there."""

    upper: str | None
    hidden: str
    applied: str
    base: str
    project: str
    view: str


class Backend(ABC):
    """One engine."""

    name: str
    isolation: str
    features: Features

    @abstractmethod
    async def create(self, blueprint: Blueprint, progress: Progress | None = None) -> Sandbox:
        """Starts the sandbox and connects to its agentd.

        Raises HostError when the machine forbids it (cause and remedy in the error),
        UnenforceableError for an explicit limit, ResourceExhaustedError, LaunchError for what
        nobody foresaw. When it raises, nothing is left: no process, mount, cgroup, id range, file.
        """

    @abstractmethod
    async def start(self, blueprint: Blueprint, progress: Progress | None = None) -> Sandbox:
        """Runs a stopped sandbox again, on the files it left. Raises as `create` does, and
        NotFoundError when those files are gone; the files are kept whatever happens."""

    @abstractmethod
    async def reattach(self, blueprint: Blueprint) -> Sandbox | None:
        """Finds a kept sandbox that ran while nobody watched; None if it does not run any more.

        Of one that does not, nothing but its files is left then.
        Raises SandboxUnavailableError when its process lives but its agentd does not answer.
        """

    @abstractmethod
    def kept(self) -> list[str]:
        """Ids of the kept sandboxes of which anything exists."""

    @abstractmethod
    async def remove(self, id: str) -> None:
        """Removes whatever is left of a kept sandbox, running or not. Idempotent."""

    @abstractmethod
    async def end(self, id: str) -> None:
        """Ends whatever still runs of a kept sandbox that nobody holds, and keeps its files.
        Idempotent; cheap where nothing does."""

    async def image_view(
        self, blueprint: Blueprint, progress: Progress | None = None
    ) -> View | None:
        """The files of its image as commands will find them, to look up what the host must know of
        it; None: it is the machine's own, or this engine can't tell. May unpack it first."""
        return None

    def workspace_files(self, blueprint: Blueprint) -> WorkspaceFiles:
        """Raises UnsupportedError where they can't be seen from outside."""
        raise UnsupportedError(f"{self.name} has no workspaces")

    async def discard_workspace(self, blueprint: Blueprint) -> None:
        """Removes those changes. Preconditions: the sandbox does not run."""
        raise UnsupportedError(f"{self.name} has no workspaces")

    def changed_files(self, blueprint: Blueprint) -> str:
        """The directory of the host that holds what a sandbox has changed of its image. Raises
        UnsupportedError where there is none. Preconditions: the sandbox does not run."""
        raise UnsupportedError(f"{self.name} builds no images")

    def describe(self) -> dict[str, Any]:
        """Name, isolation and features, for `setup --check --json` and the API."""
        features = msgspec.to_builtins(self.features)
        return {"name": self.name, "isolation": self.isolation, **features}

    async def collect_garbage(self) -> int:
        """Removes what owners that died left behind; returns how many. Cheap when there is none."""
        return 0
