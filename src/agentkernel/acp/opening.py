"""What a bridge needs of where its agent runs, however that came to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from agentkernel.acp.link import AgentLink
from agentkernel.agents.acp.paths import PathMap
from agentkernel.agents.acp.services import Inside
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.errors import AgentKernelError, ConflictError


class LoginNeededError(ConflictError):
    """There is no login with the agent's provider, or it has ended."""


@dataclass(frozen=True)
class Opened:
    """A running agent. `workspace`: the sandbox has a copy of the project, whose changes can be
    applied. `servers`: MCP servers of the agent's that its sessions have to be told of."""

    sandbox: AsyncSandbox
    link: AgentLink
    inside: Inside
    paths: PathMap
    workspace: bool = True
    servers: list[dict[str, Any]] = field(default_factory=list)


class Unopenable:
    """What keeps the agent from being started was known before the editor asked: it is told then,
    in words that the editor shows."""

    def __init__(self, agent: str, error: AgentKernelError) -> None:
        self.agent = agent
        self._error = error

    async def open(self) -> Opened:
        raise self._error

    async def leave(self, *, idle: bool) -> None:
        pass


class Opener(Protocol):
    """Finds the agent that runs, or starts one."""

    agent: str
    """What it is called."""

    async def open(self) -> Opened:
        """Raises AgentKernelError; LoginNeededError if the user has to log in first."""

    async def leave(self, *, idle: bool) -> None:
        """The editor has gone. `idle`: no turn is under way."""
