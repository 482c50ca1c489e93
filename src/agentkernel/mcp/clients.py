"""Clients that `mcp install` knows: where their configuration is, and what an entry looks like."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Scope = Literal["user", "project"]


@dataclass(frozen=True)
class Client:
    """`table`: the key that holds the servers by their names."""

    title: str
    format: Literal["json", "toml"]
    table: str
    user_files: Callable[[Mapping[str, str]], list[str]]
    project_files: tuple[str, ...]
    entry: Callable[[list[str]], dict[str, Any]]
    after: str

    def path(self, scope: Scope, directory: str, environment: Mapping[str, str]) -> str:
        """The file that is there, else the first one that could be."""
        if scope == "project":
            known = [os.path.join(directory, name) for name in self.project_files]
        else:
            known = self.user_files(environment)
        return next((path for path in known if os.path.lexists(path)), known[0])


def _home(environment: Mapping[str, str], *parts: str) -> str:
    return os.path.join(environment.get("HOME") or os.path.expanduser("~"), *parts)


def _claude(environment: Mapping[str, str]) -> list[str]:
    chosen = environment.get("CLAUDE_CONFIG_DIR")
    return [os.path.join(chosen, ".claude.json") if chosen else _home(environment, ".claude.json")]


def _codex(environment: Mapping[str, str]) -> list[str]:
    return [
        os.path.join(environment.get("CODEX_HOME") or _home(environment, ".codex"), "config.toml")
    ]


def _gemini(environment: Mapping[str, str]) -> list[str]:
    return [_home(environment, ".gemini", "settings.json")]


def _opencode(environment: Mapping[str, str]) -> list[str]:
    if chosen := environment.get("OPENCODE_CONFIG"):
        return [chosen]
    base = environment.get("XDG_CONFIG_HOME") or _home(environment, ".config")
    return [os.path.join(base, "opencode", name) for name in ("opencode.json", "opencode.jsonc")]


def _split(words: list[str]) -> dict[str, Any]:
    return {"command": words[0], "args": words[1:]}


CLIENTS: dict[str, Client] = {
    "claude": Client(
        title="Claude Code",
        format="json",
        table="mcpServers",
        user_files=_claude,
        project_files=(".mcp.json",),
        entry=lambda words: {"type": "stdio", **_split(words)},
        after="`claude mcp list` shows it; a running Claude Code has to be started again",
    ),
    "codex": Client(
        title="Codex",
        format="toml",
        table="mcp_servers",
        user_files=_codex,
        project_files=(".codex/config.toml",),
        entry=_split,
        after="`codex mcp list` shows it; a project's file counts once Codex trusts the project",
    ),
    "gemini": Client(
        title="Gemini CLI",
        format="json",
        table="mcpServers",
        user_files=_gemini,
        project_files=(".gemini/settings.json",),
        entry=_split,
        after="`gemini mcp list` shows it",
    ),
    "opencode": Client(
        title="OpenCode",
        format="json",
        table="mcp",
        user_files=_opencode,
        project_files=("opencode.json", "opencode.jsonc"),
        entry=lambda words: {"type": "local", "command": words, "enabled": True},
        after="`opencode mcp list` shows it",
    ),
}
