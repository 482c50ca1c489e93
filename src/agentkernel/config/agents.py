"""What files say about agents: `[agents.NAME]`, how one of them is run, and `[mcp.NAME]`, MCP
servers that they may be given. Each check raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from agentkernel.config.networks import check_presets, check_targets

AGENT_WANTS = "a section with model, presets, allow, mcp, setup, attended or sandbox_tools"
MCP_WANTS = "a section with a command (a list) or a url, and env or headers, allow, secrets"
AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
MCP_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]{1,2000}\Z")
_MOST_WORDS = 64
_MOST_TEXT = 4096


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > _MOST_TEXT or "\0" in value:
        raise ValueError
    return value


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MOST_WORDS:
        raise ValueError
    return tuple(_text(word) for word in value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _servers(value: Any) -> tuple[str, ...]:
    names = _words(value)
    if not all(MCP_NAME.match(name) for name in names):
        raise ValueError
    return tuple(dict.fromkeys(names))


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _MOST_WORDS:
        raise ValueError
    for name, text in value.items():
        if not name or not isinstance(text, str) or "\0" in text or len(text) > _MOST_TEXT:
            raise ValueError
    return dict(value)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not _URL.match(value):
        raise ValueError
    return value


_AGENT: Mapping[str, Callable[[Any], Any]] = {
    "model": _text,
    "presets": check_presets,
    "allow": check_targets,
    "mcp": _servers,
    "setup": _words,
    "attended": _flag,
    "sandbox_tools": _flag,
}
_SERVER: Mapping[str, Callable[[Any], Any]] = {
    "command": _words,
    "url": _url,
    "env": _texts,
    "headers": _texts,
    "allow": check_targets,
    "secrets": _words,
}


def check_agent(value: Any) -> dict[str, Any]:
    """`model`: which it uses. `presets`, `allow`: what it reaches besides its model. `mcp`: which
    servers it has. `setup`: commands that are run first. `attended`: it asks before it acts."""
    if not isinstance(value, dict) or value.keys() - _AGENT.keys():
        raise ValueError
    return {key: _AGENT[key](entry) for key, entry in value.items()}


def check_server(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() - _SERVER.keys():
        raise ValueError
    if bool(value.get("command")) == bool(value.get("url")):
        raise ValueError
    if value.get("url") and "env" in value:
        raise ValueError  # nobody would get it
    return {key: _SERVER[key](entry) for key, entry in value.items()}
