"""Turns as calls of the tools that an agent offers."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from .conversation import Conversation
from .script import Edit, Read, Run, Say, Script, Turn, Use, Write


@dataclass(frozen=True)
class Call:
    """`text`: the argument of a tool that takes free text, instead of `arguments`."""

    name: str
    arguments: dict[str, Any]
    text: str | None = None


class NoTool(Exception):
    """The agent offers nothing to carry out a turn with."""


# By name: how an agent calls the tool, and what it calls the parts of each meaning.
_PATHS = ("file_path", "filePath", "absolute_path", "path")
_OLD = ("old_string", "oldString", "old_str")
_NEW = ("new_string", "newString", "new_str")
_READ = ("Read", "read_file", "read")
_EDIT = ("Edit", "replace", "edit")
_WRITE = ("Write", "write_file", "write")
_RUN = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell")
_PATCH = "apply_patch"


def answer(turn: Turn, conversation: Conversation) -> str | Call:
    """What the model answers: text, or a call. Raises NoTool."""
    if isinstance(turn, Say):
        return turn.text
    if conversation.edits_by_text:
        return _by_text(turn)
    tools = conversation.tools
    if isinstance(turn, Use):
        for name in tools:
            if name == turn.tool or name.endswith(turn.tool):
                return Call(name, turn.arguments)
        if conversation.in_code and turn.tool.startswith("mcp__"):
            return Call(turn.tool, turn.arguments)  # those are there without being listed
        raise NoTool(f"no tool {turn.tool} among {sorted(tools)}")
    if isinstance(turn, Run):
        return _shell(turn.command, conversation)
    path = posixpath.join(conversation.directory, turn.path)
    if isinstance(turn, Read):
        if name := _first(_READ, tools):
            return Call(name, {**_named(tools[name], _PATHS, path)})
        return _shell(f"cat {turn.path}", conversation)
    if _PATCH in tools and not _first((*_EDIT, *_WRITE), tools):
        patch = _patch(turn, path)
        fields = tools[_PATCH]
        if fields is None:
            return Call(_PATCH, {}, patch)
        return Call(_PATCH, {"patchText" if "patchText" in fields else "input": patch})
    if isinstance(turn, Edit):
        if name := _first(_EDIT, tools):
            offered = tools[name]
            arguments = {
                **_named(offered, _PATHS, path),
                **_named(offered, _OLD, turn.old),
                **_named(offered, _NEW, turn.new),
            }
            if "instruction" in (offered or {}):
                arguments["instruction"] = "as the task says"
            return Call(name, arguments)
        return _shell(f"apply_patch <<'PATCH'\n{_patch(turn, path)}PATCH", conversation)
    if name := _first(_WRITE, tools):
        return Call(name, {**_named(tools[name], _PATHS, path), "content": turn.content})
    return _shell(f"cat > {turn.path} <<'FILE'\n{turn.content}\nFILE", conversation)


def position(script: Script, conversation: Conversation) -> int:
    """How many turns were carried out: each left a tool's result or a text of the script."""
    if conversation.edits_by_text:
        texts = {str(answer(turn, conversation)).strip() for turn in script.turns}
    else:
        texts = {turn.text.strip() for turn in script.turns if isinstance(turn, Say)}
    return len(conversation.results) + sum(text.strip() in texts for text in conversation.said)


def _first(names: tuple[str, ...], tools: dict[str, Any]) -> str:
    return next((name for name in names if name in tools), "")


def _named(offered: dict[str, Any] | None, names: tuple[str, ...], value: str) -> dict[str, str]:
    """A value under the name that the tool has for it."""
    return {next((name for name in names if name in (offered or {})), names[0]): value}


def _shell(command: str, conversation: Conversation) -> Call:
    tools = conversation.tools
    name = _first(_RUN, tools)
    if not name:
        raise NoTool(f"no shell among {sorted(tools)}")
    offered = tools[name] or {}
    if "cmd" in offered:
        return Call(name, {"cmd": command})
    if offered.get("command", {}).get("type") == "array":
        return Call(name, {"command": ["bash", "-c", command]})
    arguments = {"command": command}
    if "description" in offered:
        arguments["description"] = "as the task says"
    return Call(name, arguments)


def _patch(turn: Edit | Write, path: str) -> str:
    if isinstance(turn, Write):
        change = [f"*** Add File: {path}", *(f"+{line}" for line in turn.content.splitlines())]
    else:
        change = [
            f"*** Update File: {path}",
            "@@",
            *(f"-{line}" for line in turn.old.splitlines()),
            *(f"+{line}" for line in turn.new.splitlines()),
        ]
    return "\n".join(["*** Begin Patch", *change, "*** End Patch", ""])


def _by_text(turn: Turn) -> str:
    """For an agent that reads blocks out of the text. What it can't be told to do is said."""
    match turn:
        case Edit():
            return block(turn.path, turn.old, turn.new)
        case Write():
            return block(turn.path, "", turn.content)
        case Read():
            return f"Please add `{turn.path}` to the chat."
        case Run():
            return f"Run this:\n\n```bash\n{turn.command}\n```\n"
    raise NoTool(f"an agent without tools can't do {turn}")


def block(path: str, old: str, new: str) -> str:
    """A change as agents without tools read it."""
    parts = [path, "```", "<<<<<<< SEARCH", *old.splitlines(), "=======", *new.splitlines()]
    return "\n".join([*parts, ">>>>>>> REPLACE", "```", ""])
