"""What files and options say of an agent, as requests have it: for `agent run` and `acp`."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from agentkernel.config.finding import user_file
from agentkernel.errors import InvalidInputError


def add_network(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """What the files say of this agent is besides what is said of all sandboxes."""
    network: dict[str, Any] = spec.get("network") or {}
    for key in ("presets", "allow"):
        if more := settings.get(key):
            network[key] = list(dict.fromkeys([*network.get(key, ()), *more]))
    if network:
        spec["network"] = network


def servers_of(options: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """MCP servers by their names in the files."""
    known: dict[str, dict[str, Any]] = options.mcp_servers
    found = []
    wanted = [name for text in options.mcp or () for name in text.split(",") if name]
    names = wanted or settings.get("mcp", ())
    if names == ["all"]:
        names = sorted(known)
    for name in dict.fromkeys(() if names == ["none"] else names):
        if name not in known:
            have = ", ".join(sorted(known)) or "none"
            raise InvalidInputError(
                f"there is no MCP server {name!r}: known are {have}",
                hint=f"write [mcp.{shlex.quote(name)}] into {user_file()}",
            )
        entry = known[name]
        found.append({"name": name, **{key: _json(value) for key, value in entry.items()}})
    return found


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
