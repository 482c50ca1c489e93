"""Logins of agents, of which nothing but placeholders enters a sandbox: `kernel.agents.logins`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkernel.agents.definition import AgentDefinition
from agentkernel.network.policy.model import SecretBinding


@dataclass(frozen=True)
class LoginUse:
    """What a sandbox gets of a login: `secrets` as in SandboxSpec; `words`: which login that is,
    for people. Empty: there is none."""

    secrets: tuple[str, ...] = ()
    words: str = ""


class Logins:
    """See the module."""

    async def use(self, definition: AgentDefinition, *, owner: str) -> LoginUse:
        """The owner's login with this agent, refreshed if it is about to end."""
        return LoginUse()

    async def files(
        self, definition: AgentDefinition, bound: Sequence[SecretBinding], *, owner: str
    ) -> dict[str, bytes]:
        """Files of the agent's home (as "~/…") that stand for the login, made of the placeholders
        that the new sandbox has been given."""
        return {}
