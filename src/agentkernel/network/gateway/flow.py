"""One connection of a guest on its way through the gateway, and whose it is."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentkernel.network.gateway.messages import Via
from agentkernel.network.policy.judging import Verdict
from agentkernel.network.policy.model import NetworkSetting, Operator


class Subject(Protocol):
    """A sandbox, as flows see it. Its setting may change at any moment: never keep a copy of it."""

    id: str

    @property
    def setting(self) -> NetworkSetting: ...

    @property
    def operator(self) -> Operator: ...

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Values by reference: those of its bindings, and all others of its owner, which must not
        leave it either."""

    def emit(self, kind: str, flow: Flow, **words: Any) -> None:
        """An event of this flow; `words` are fields of NetworkEvent."""

    async def take(self, *, up: int = 0, down: int = 0) -> None:
        """Counts bytes and waits as the caps say. Raises CapReached."""


class CapReached(Exception):
    """A bound of the sandbox's traffic is reached; the words say which."""


class Refused(Exception):
    """The other side may not or can't be reached; the words say why. `denied`: by policy."""

    def __init__(self, words: str, *, denied: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.denied = denied


@dataclass
class Flow:
    """`host`: the canonical name the guest asked for, or an address in canonical form.

    `extra`, for whoever judges it again: "address" as events have it, "vetted" the address that was
    judged and dialled, "spliced", "unseen" (TLS that hides whom it is for), "named" (by TLS, at an
    address), "request" (method and path of the one that is being answered).
    """

    subject: Subject
    client: socket.socket
    host: str
    port: int
    via: Via
    verdict: Verdict
    extra: dict[str, Any] = field(default_factory=dict)


class Dialler(Protocol):
    """Reaches the other side on the guest's behalf."""

    async def dial(self, flow: Flow) -> tuple[socket.socket, str]:
        """Resolves the flow's host on this side, vets every address, connects to one that passed,
        through the host's upstream proxy if there is one. The connected socket, non-blocking, and
        the address. Raises Refused."""
