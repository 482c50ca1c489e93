"""Files that are written into a sandbox before an agent starts there, but those of its login."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentkernel.agents.commands import Fill, filled, home_path
from agentkernel.agents.definition import AgentDefinition, File
from agentkernel.agents.mcp_config import mcp_file
from agentkernel.agents.model import McpServer


def guest_files(
    definition: AgentDefinition, fill: Fill, *, context: str, mcp: Sequence[McpServer]
) -> dict[str, bytes]:
    """Absolute paths inside and what is in them: the definition's files, `context` where the agent
    reads it, its MCP servers (in the same file as its settings if that is where it looks), and the
    task if there is one."""
    found = {
        home_path(filled(file.path, fill), fill.home): _content(file, fill)
        for file in definition.files
        if not file.secret or fill.secrets.get(file.secret)
    }
    if definition.context:
        found[home_path(filled(definition.context, fill), fill.home)] = context
    elif fill.context:
        found[fill.context] = context
    if definition.mcp.file:
        place = mcp_place(definition, fill)
        found[place] = mcp_file(definition.mcp.format, mcp, found.get(place, ""))
    elif mcp:
        mcp_file(definition.mcp.format, mcp)
    if fill.task is not None and fill.task_file:
        found[fill.task_file] = fill.task
    return {path: text.encode("utf-8", "surrogateescape") for path, text in found.items()}


def _content(file: File, fill: Fill) -> str:
    # A string of JSON is one of TOML and of YAML, too: a path with a quote in it ends none.
    escape = file.path.endswith((".json", ".toml", ".yaml"))
    return filled(file.content.lstrip("\n"), fill, escape=_escaped if escape else str)


def _escaped(value: str) -> str:
    return json.dumps(value)[1:-1]


def mcp_place(definition: AgentDefinition, fill: Fill) -> str:
    """Where its MCP servers are written: what {mcp} stands for."""
    return home_path(filled(definition.mcp.file, fill), fill.home) if definition.mcp.file else ""
