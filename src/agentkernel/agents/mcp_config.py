"""How agents are told which MCP servers they have: their files and command lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agentkernel.agents.commands import Fill, filled
from agentkernel.agents.definition import AgentDefinition, McpFormat
from agentkernel.agents.model import McpServer
from agentkernel.errors import InvalidInputError, UnsupportedError

_Shape = Callable[[McpServer], dict[str, Any]]


def mcp_file(format: McpFormat, servers: Sequence[McpServer], base: str = "") -> str:
    """The file's text. `base`: what else is to stand in it, such as settings of the definition.
    Raises InvalidInputError, UnsupportedError."""
    for server in servers:
        if bool(server.command) == bool(server.url):
            raise InvalidInputError(
                f"MCP server {server.name} needs a command or a url, one of them"
            )
    names = [server.name for server in servers]
    if len(set(names)) != len(names):
        raise InvalidInputError("two MCP servers have the same name", hint="rename one of them")
    if format == "none":
        if servers:
            raise UnsupportedError("this agent can't use MCP servers")
        return base
    if format == "codex":
        return _toml(servers, base)
    key, shape = _JSON[format]
    try:
        document = json.loads(base) if base.strip() else {}
        known = document.setdefault(key, {})
        known.update({server.name: shape(server) for server in servers})
    except (ValueError, AttributeError):
        raise InvalidInputError("the settings that MCP servers are added to are no JSON") from None
    return json.dumps(document, indent=2) + "\n"


def mcp_words(definition: AgentDefinition, fill: Fill, *, trust_project: bool = False) -> list[str]:
    """What is added to command lines so that the file counts, and the project's own only if it is
    trusted."""
    mcp = definition.mcp
    words = [*mcp.words, *([] if trust_project else mcp.ignore_project)]
    return [filled(word, fill) for word in words]


def _claude(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"type": "http", "url": server.url, **_given("headers", server.headers)}
    return _command(server)


def _gemini(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {"httpUrl": server.url, **_given("headers", server.headers)}
    return _command(server)


def _opencode(server: McpServer) -> dict[str, Any]:
    if server.url:
        return {
            "type": "remote", "url": server.url, "enabled": True, "oauth": False,
            **_given("headers", server.headers),
        }  # fmt: skip
    return {
        "type": "local", "command": list(server.command), "enabled": True,
        **_given("environment", server.env),
    }  # fmt: skip


def _command(server: McpServer) -> dict[str, Any]:
    program, *arguments = server.command
    return {"command": program, "args": arguments, **_given("env", server.env)}


def _given(key: str, values: Mapping[str, str]) -> dict[str, Any]:
    return {key: dict(values)} if values else {}


_JSON: Final[dict[str, tuple[str, _Shape]]] = {
    "claude": ("mcpServers", _claude),
    "gemini": ("mcpServers", _gemini),
    "opencode": ("mcp", _opencode),
}


def _toml(servers: Sequence[McpServer], base: str) -> str:
    """Tables at the end of the file, where they take nothing away from what stands before."""
    parts = [base.rstrip("\n")] if base.strip() else []
    for server in servers:
        lines = [f"[mcp_servers.{server.name}]"]
        if server.url:
            lines.append(f"url = {_string(server.url)}")
            if server.headers:
                lines.append(f"http_headers = {_table(server.headers)}")
        else:
            program, *arguments = server.command
            lines.append(f"command = {_string(program)}")
            lines.append(f"args = [{', '.join(map(_string, arguments))}]")
            if server.env:
                lines.append(f"env = {_table(server.env)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _table(values: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{_string(k)} = {_string(v)}" for k, v in values.items()) + " }"


def _string(text: str) -> str:
    """A basic string of TOML: JSON's escapes are TOML's, but for what is not in its planes."""
    if re.search(r"[\ud800-\udfff]", text):
        raise InvalidInputError("a word of an MCP server is not valid Unicode")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
