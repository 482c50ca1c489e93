"""What a caller asks for of the network, and its expansion into what is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.model import FIRST_PHASE, Caps, NetworkSetting, Policy, Rule
from agentkernel.network.policy.presets import PRESETS, expand_presets
from agentkernel.network.policy.targets import check_rule, parse_target
from agentkernel.security.profiles import security_profile

__all__ = [
    "NetworkRequest",
    "PhaseRequest",
    "Target",
    "check_phase",
    "expand_floor",
    "expand_network",
    "expand_phase",
    "parse_target",
]

Target = Annotated[str, Meta(min_length=1, max_length=300)]

_PHASE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_MOST_RULES = 2048


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase. `deny` and `allow` are targets: HOST[:PORT], HOST:*, CIDR[:PORT]; in the policy
    they stand in the order deny, rules, allow, presets. "none" is the preset that stands alone.
    `presets` None: those of the profile in phase "default", none in others; an empty list: none."""

    presets: Annotated[list[str], Meta(max_length=32)] | None = None
    allow: Annotated[list[Target], Meta(max_length=512)] = []
    deny: Annotated[list[Target], Meta(max_length=512)] = []
    rules: Annotated[list[Rule], Meta(max_length=512)] = []


class NetworkRequest(PhaseRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sandbox's network. `phases` by name; what stands beside them is phase "default". `phase`:
    the one it begins with. `caps` hold in all of them."""

    phases: Annotated[dict[str, PhaseRequest], Meta(max_length=16)] = {}
    phase: str | None = None
    caps: Caps | None = None


def expand_network(
    request: NetworkRequest | None, profile: str, registries: tuple[Rule, ...]
) -> NetworkSetting:
    """The setting of a new sandbox; without a request, the profile's: restrictive none, moderate
    `registries`, permissive the public internet. `registries`: the rules that preset stands for on
    this machine. Raises InvalidInputError."""
    request = request or NetworkRequest()
    presets = security_profile(profile).network
    caps = request.caps or Caps()
    phases = {
        check_phase(name): expand_phase(phase, registries, caps=caps)
        for name, phase in request.phases.items()
    }
    beside = request.presets is not None or request.allow or request.deny or request.rules
    if FIRST_PHASE not in phases:
        phases[FIRST_PHASE] = expand_phase(request, registries, caps=caps, presets=presets)
    elif beside:
        raise InvalidInputError(
            f'the phase "{FIRST_PHASE}" is given twice: by its name, and beside the phases',
            hint="leave out one of them",
        )
    phase = FIRST_PHASE if request.phase is None else check_phase(request.phase)
    if phase not in phases:
        raise InvalidInputError(
            f'there is no phase "{phase}" to begin with', hint=f"phases are {', '.join(phases)}"
        )
    return NetworkSetting(phase=phase, phases=phases)


def expand_phase(
    request: PhaseRequest,
    registries: tuple[Rule, ...],
    *,
    caps: Caps | None = None,
    presets: Sequence[str] = (),
) -> Policy:
    """One phase's policy. `presets`: where the request names none. Raises InvalidInputError."""
    names = presets if request.presets is None else request.presets
    rules = [
        *(parse_target(text, source="the deny list", deny=True) for text in request.deny),
        *(check_rule(rule, source="the rules") for rule in request.rules),
        *(parse_target(text, source="the allow list") for text in request.allow),
        *expand_presets(names, registries),
    ]
    return Policy(rules=_bounded(rules), caps=caps or Caps())


def expand_floor(entries: Sequence[str], registries: tuple[Rule, ...]) -> Policy:
    """The most that any sandbox gets: targets, and names of presets (a word that could be both is
    the preset). An empty list: nothing. Raises InvalidInputError."""
    presets = [entry for entry in entries if entry in PRESETS]
    rules = [
        *(parse_target(entry, source="network.floor") for entry in entries if entry not in PRESETS),
        *expand_presets(presets, registries),
    ]
    # Every bound is the sandbox's own: what the floor says is where to.
    return Policy(rules=_bounded(rules))


def check_phase(name: str) -> str:
    """Returns `name` if it may name a phase."""
    if not _PHASE.match(name):
        raise InvalidInputError(
            f"{name[:60]!a} can't name a phase",
            hint="use lower-case letters, digits and '-', at most 32, no '-' at the start",
        )
    return name


def _bounded(rules: list[Rule]) -> tuple[Rule, ...]:
    if len(rules) > _MOST_RULES:
        raise InvalidInputError(f"{len(rules)} rules are too many; {_MOST_RULES} are the most")
    return tuple(rules)
