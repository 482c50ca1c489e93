"""MCP servers that a session has given its agent by a file that the agent does not read when it
speaks ACP: an editor's sessions are told of them instead.

The file is inside and the agent's own, so what it says is no more than what the agent could do.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agentkernel.client._async.sandbox import AsyncSandbox

_MOST_BYTES: Final = 1 << 20
_MOST: Final = 64
_SHOW: Final = 'cat "$HOME/$0"'


async def own_servers(sandbox: AsyncSandbox, path: str) -> list[dict[str, Any]]:
    """As a session/new has them. `path`: of a file of Claude Code's form, below the home."""
    shown = await sandbox.exec(
        ["sh", "-c", _SHOW, path], timeout_seconds=10, output_bytes=_MOST_BYTES
    )
    if shown.exit_code != 0:
        return []
    try:
        body = msgspec.json.decode(shown.stdout_bytes, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return []
    servers = body.get("mcpServers")
    entries = servers.items() if isinstance(servers, dict) else ()
    return [_server(name, entry) for name, entry in list(entries)[:_MOST] if _is_one(entry)]


def _is_one(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    return isinstance(entry.get("url"), str) or isinstance(entry.get("command"), str)


def _server(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    if isinstance(url := entry.get("url"), str):
        kind = "sse" if entry.get("type") == "sse" else "http"
        return {"type": kind, "name": name, "url": url, "headers": _pairs(entry.get("headers"))}
    words = entry.get("args")
    return {
        "name": name,
        "command": entry["command"],
        "args": [word for word in words if isinstance(word, str)]
        if isinstance(words, list)
        else [],
        "env": _pairs(entry.get("env")),
    }


def _pairs(values: Any) -> list[dict[str, str]]:
    if not isinstance(values, dict):
        return []
    return [
        {"name": name, "value": value} for name, value in values.items() if isinstance(value, str)
    ]
