"""What is known of one registry, and of all that a machine's package clients use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agentkernel.network.policy.model import Rule

Ecosystem = Literal["pip", "npm", "apt", "cargo", "go", "maven", "gems"]


@dataclass(frozen=True)
class Credential:
    """What the machine's client proves itself with to one host, over TLS.

    `value` never enters a sandbox: its files hold a placeholder. `reference` stays the same when
    the value is changed. `username` is empty for a token, and when the name itself is the secret:
    then `password` is the constant that clients send beside it.
    """

    reference: str
    host: str
    port: int
    kind: Literal["basic", "bearer"]
    source: str
    value: str = field(repr=False)
    username: str = ""
    password: str = ""


@dataclass(frozen=True)
class Registry:
    """One place that packages come from.

    `url` holds no credentials. `source` is the file or variable that says so; without `named` it
    is the client's own default, or a host that is known to serve the files of one that is used.
    `role` and `name` are what it is to its client: an extra index, the registry of a scope.
    """

    ecosystem: Ecosystem
    url: str
    host: str
    port: int
    source: str
    named: bool = True
    role: str = "index"
    name: str = ""
    credential: Credential | None = None


@dataclass(frozen=True)
class Machine:
    """What the package clients of a machine use, and what follows for a sandbox.

    `settings` by client: what its files inside have to say besides the addresses. `distribution`
    is "debian bookworm" and the like: the system that the machine's apt sources are for.
    `notes` are sentences about what was left out, and why.
    """

    registries: tuple[Registry, ...] = ()
    rules: tuple[Rule, ...] = ()
    credentials: tuple[Credential, ...] = ()
    settings: dict[Ecosystem, dict[str, str]] = field(default_factory=dict)
    distribution: str = ""
    notes: tuple[str, ...] = ()

    def of(self, ecosystem: Ecosystem, role: str = "") -> tuple[Registry, ...]:
        """Those that the machine names for a client, in its order."""
        return tuple(
            item
            for item in self.registries
            if item.ecosystem == ecosystem and item.named and role in ("", item.role)
        )
