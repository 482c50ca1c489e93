"""What an agent reaches when nobody says more: its model, by the login that is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentkernel.agents.definition import AgentDefinition
from agentkernel.network.secrets.bindings import parse_binding


class Reach(NamedTuple):
    """As a request for a network says it."""

    presets: list[str]
    allow: list[str]


def reach_of(definition: AgentDefinition, secrets: Iterable[str]) -> Reach:
    """`secrets`: of its login, as in SandboxSpec ("NAME@HOST"): where one goes is where the model
    is. Raises InvalidInputError."""
    hosts = [host for text in secrets for host in parse_binding(text).hosts]
    return Reach(
        list(definition.network.presets),
        list(dict.fromkeys([*definition.network.allow, *hosts])),
    )
