"""What a caller asks for of the network, and its expansion into what is stored."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from agentkernel.network.policy.model import Caps, NetworkSetting, Policy, Rule

Target = Annotated[str, Meta(min_length=1, max_length=300)]


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase. `deny` and `allow` are targets: HOST[:PORT], HOST:*, CIDR[:PORT]; in the policy
    they stand in the order deny, rules, allow, presets. "none" is the preset that stands alone."""

    presets: Annotated[list[str], Meta(max_length=32)] = []
    allow: Annotated[list[Target], Meta(max_length=512)] = []
    deny: Annotated[list[Target], Meta(max_length=512)] = []
    rules: Annotated[list[Rule], Meta(max_length=512)] = []


class NetworkRequest(PhaseRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sandbox's network. `phases` by name; what stands beside them is phase "default". `phase`:
    the one it begins with."""

    phases: Annotated[dict[str, PhaseRequest], Meta(max_length=16)] = {}
    phase: str | None = None
    caps: Caps | None = None


def expand_network(
    request: NetworkRequest | None, profile: str, registries: tuple[Rule, ...]
) -> NetworkSetting:
    """The setting of a new sandbox; without a request, the profile's: restrictive none, moderate
    `registries`, permissive the public internet. `registries`: the rules that preset stands for on
    this machine. Raises InvalidInputError."""
    raise NotImplementedError


def parse_target(text: str, *, source: str, deny: bool = False) -> Rule:
    """`HOST`, `HOST:PORT`, `HOST:*`, `*.HOST`, `ADDRESS`, `CIDR`, `[IPV6]:PORT`, and `splice:`
    before any. Raises InvalidInputError that says what is wrong with it."""
    raise NotImplementedError


def is_wider(now: Policy, before: Policy) -> bool:
    """True if `now` may allow anything that `before` does not; when in doubt, True."""
    raise NotImplementedError
