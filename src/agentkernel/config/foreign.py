"""MCP servers that an agent's own file of a project names, for people who are asked to trust it.

Only to be shown: nothing is decided by it, and what is no such file has no servers.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

_MOST_SERVERS = 64
_MOST_WORDS = 200
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def mcp_servers(data: bytes, path: str) -> dict[str, str]:
    """Name → command line or address."""
    try:
        text = data.decode()
        if path.endswith(".toml"):
            body: Any = tomllib.loads(text)
        else:
            body = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except (ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for key in ("mcpServers", "mcp_servers", "mcp", "servers"):
        entries = body.get(key) if isinstance(body, dict) else None
        for name, entry in list(entries.items() if isinstance(entries, dict) else ()):
            if isinstance(entry, dict) and len(found) < _MOST_SERVERS:
                found[str(name)[:_MOST_WORDS]] = _words(entry)[:_MOST_WORDS]
    return found


def _words(entry: dict[str, Any]) -> str:
    for key in ("url", "httpUrl"):
        if isinstance(entry.get(key), str):
            return str(entry[key])
    command, more = entry.get("command"), entry.get("args")
    words = [command] if isinstance(command, str) else command
    return " ".join(
        str(word)
        for words_of in (words, more)
        for word in (words_of if isinstance(words_of, list) else ())
    )
