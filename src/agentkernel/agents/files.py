"""All files that are written into a sandbox before an agent starts there, but those of its login."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.agents.commands import Fill
from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.model import McpServer


def guest_files(
    definition: AgentDefinition, fill: Fill, *, context: str, mcp: Sequence[McpServer]
) -> dict[str, bytes]:
    """Absolute paths inside and what is in them: the definition's files, `context` where the agent
    reads it, its MCP servers (in the same file as its settings if that is where it looks), and the
    task if it is read from a file."""
    raise NotImplementedError
