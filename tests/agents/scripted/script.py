"""What a scripted model does: turns by meaning, to be put into the words of each agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class _Turn:
    """`gate`: it is answered only once `ScriptedModels.open(gate)` was called."""

    gate: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Say(_Turn):
    """Text and no tool: the agent's work for this prompt is done."""

    text: str


@dataclass(frozen=True)
class Read(_Turn):
    path: str


@dataclass(frozen=True)
class Edit(_Turn):
    """`old` stands once in the file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Write(_Turn):
    path: str
    content: str


@dataclass(frozen=True)
class Run(_Turn):
    command: str


@dataclass(frozen=True)
class Use(_Turn):
    """Any tool by name, or by how its name ends: those of MCP servers have a prefix."""

    tool: str
    arguments: dict[str, Any]


Turn = Say | Read | Edit | Write | Run | Use


@dataclass(frozen=True)
class Script:
    """`key`: for whoever comes with this key; `when`: for conversations with a prompt that has this
    text in it. `input_tokens`, `output_tokens`: what each answer says it took."""

    turns: Sequence[Turn]
    key: str | None = None
    when: str = ""
    input_tokens: int = 100
    output_tokens: int = 10

    def turn(self, position: int) -> Turn:
        return self.turns[position] if position < len(self.turns) else Say("All done.")


def parse(text: str) -> list[Script]:
    """Scripts as JSON: one or a list of {"turns": […], "key", "when"}, or just a list of turns. A
    turn is {"say": TEXT}, {"read": PATH}, {"edit": PATH, "old", "new"}, {"write": PATH, "content"},
    {"run": COMMAND} or {"use": TOOL, "arguments"}. Raises ValueError."""
    found = json.loads(text)
    if isinstance(found, dict):
        found = [found]
    if not isinstance(found, list):
        raise ValueError("a script is an object or a list")
    if not any(isinstance(each, dict) and "turns" in each for each in found):
        found = [{"turns": found}]
    try:
        return [
            Script(**{**each, "turns": [_turn(turn) for turn in each["turns"]]}) for each in found
        ]
    except (KeyError, TypeError) as exc:
        raise ValueError(f"no script: {exc}") from None


def _turn(given: dict[str, Any]) -> Turn:
    gate = given.get("gate", "")
    match given:
        case {"say": text}:
            return Say(text, gate=gate)
        case {"read": path}:
            return Read(path, gate=gate)
        case {"edit": path, "old": old, "new": new}:
            return Edit(path, old, new, gate=gate)
        case {"write": path, "content": content}:
            return Write(path, content, gate=gate)
        case {"run": command}:
            return Run(command, gate=gate)
        case {"use": tool}:
            return Use(tool, given.get("arguments", {}), gate=gate)
    raise ValueError(f"no turn: {given}")
