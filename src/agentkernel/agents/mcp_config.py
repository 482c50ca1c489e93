"""How agents are told which MCP servers they have: their files and command lines."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.commands import Fill
from agentkernel.agents.definition import AgentDefinition, McpFormat
from agentkernel.agents.model import McpServer


def mcp_file(format: McpFormat, servers: Sequence[McpServer], base: str = "") -> str:
    """The file's text. `base`: what else is to stand in it, such as settings of the definition."""
    raise NotImplementedError


def mcp_words(definition: AgentDefinition, fill: Fill, *, trust_project: bool = False) -> list[str]:
    """What is added to command lines so that the file counts, and the project's own only if it is
    trusted."""
    raise NotImplementedError
