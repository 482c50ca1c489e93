"""What agents say they did, read from what they print: ids, commands, files, usage, last words.

It comes from inside, so nothing of it is believed to be well formed, short or true: readers never
raise, keep a bounded amount, and what they report is what the agent says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from agentkernel.agents.definition import EventFormat
from agentkernel.agents.model import AgentUsage

MAX_LINE: Final = 1 << 20
"""Bytes of a line that is read; a longer one is passed over."""
MAX_COMMANDS: Final = 1000
MAX_FILES: Final = 1000
MAX_WORDS: Final = 4096
"""Letters that are kept of a command or a path."""
MAX_TEXT: Final = 64 << 10
_MAX_CALLS: Final = 4096
_MAX_COUNT: Final = 1 << 53
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SHELL: Final = frozenset(
    ("bash", "shell", "run_shell_command", "exec_command", "run_command", "execute", "terminal")
)
_WRITES: Final = frozenset(
    ("write", "edit", "multiedit", "notebookedit", "write_file", "replace", "edit_file", "patch",
     "apply_patch", "create_file")
)  # fmt: skip


class _Seen:
    """What has been seen so far.

    `conversation`: the agent's own id of it, which {session} stands for. `commands`: those it ran.
    `files`: those it wrote. `text`: its last words. `complete`: False if something was left out.
    """

    def __init__(self) -> None:
        self.conversation: str | None = None
        self.commands: list[str] = []
        self.files: list[str] = []
        self.text = ""
        self.usage = AgentUsage()
        self.complete = True

    def _named(self, value: Any) -> None:
        # It becomes a word of a command line: nothing that looks like an option.
        if isinstance(value, str) and _ID.fullmatch(value):
            self.conversation = value

    def _ran(self, command: Any) -> None:
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            command = command[-1] if command[1:2] in (["-c"], ["-lc"]) else " ".join(command)
        if not isinstance(command, str) or not command:
            return
        if len(self.commands) < MAX_COMMANDS and len(command) <= MAX_WORDS:
            self.commands.append(command)
        elif len(self.commands) < MAX_COMMANDS:
            self.commands.append(command[:MAX_WORDS])
            self.complete = False
        else:
            self.complete = False

    def _wrote(self, path: Any) -> None:
        if not isinstance(path, str) or not path or path in self.files:
            return
        if len(self.files) < MAX_FILES and len(path) <= MAX_WORDS:
            self.files.append(path)
        else:
            self.complete = False

    def _said(self, text: Any, *, add: bool = False) -> None:
        if isinstance(text, str):
            whole = self.text + text if add else text
            if len(whole) > MAX_TEXT:
                self.complete = False
            self.text = whole[-MAX_TEXT:]

    def _used(self, **counts: Any) -> None:
        """Replaces those that are numbers."""
        known = {name: _number(value, name) for name, value in counts.items()}
        self.usage = msgspec.structs.replace(
            self.usage, **{name: value for name, value in known.items() if value is not None}
        )

    def _called(self, tool: Any, arguments: Any) -> None:
        """A tool by its name and what it was given, as most agents have them."""
        if not isinstance(tool, str) or not isinstance(arguments, Mapping):
            return
        name = tool.rpartition("__")[2].lower()
        if name in _SHELL:
            self._ran(arguments.get("command", arguments.get("cmd")))
        elif name in _WRITES:
            for key in ("file_path", "filePath", "path", "notebook_path", "absolute_path"):
                self._wrote(arguments.get(key))


class EventReader(_Seen):
    """Of what a headless agent prints, line by line; see `_Seen` for what it has then."""

    def __init__(self, format: EventFormat) -> None:
        super().__init__()
        self._format = format
        self._calls: set[str] = set()
        self._totals: dict[str, float] = {}
        self._read: Callable[[dict[str, Any]], None] = {
            "claude": self._claude,
            "codex": self._codex,
            "gemini": self._gemini,
            "opencode": self._opencode,
        }.get(format, lambda event: None)

    def feed(self, line: bytes) -> dict[str, Any] | None:
        """One line, with its end or without; returns the event it is, None if it is none."""
        if len(line) > MAX_LINE:
            self.complete = False
            return None
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if self._format in ("text", "aider"):
            self._plain(text)
            return None
        try:
            event = json.loads(text) if text.startswith("{") else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(event, dict):
            return None
        self._read(event)
        return event

    def _once(self, identity: Any) -> bool:
        """Whether this call is seen for the first time; several events may tell of one."""
        if not isinstance(identity, str) or len(identity) > 256:
            return True
        if identity in self._calls:
            return False
        if len(self._calls) < _MAX_CALLS:
            self._calls.add(identity)
        return True

    def _plain(self, text: str) -> None:
        text = _ANSI.sub("", text)
        if self._format == "aider":
            if match := re.match(r"Applied edit to (.{1,4096})$", text):
                self._wrote(match[1])
            elif match := re.match(r"Running (.{1,4096})$", text):
                self._ran(match[1])
            elif match := re.match(r"Tokens: ([0-9.]+k?) sent, .{0,80}?([0-9.]+k?) received", text):
                self._add("input_tokens", _thousands(match[1]))
                self._add("output_tokens", _thousands(match[2]))
                self._add("turns", 1)
                if cost := re.search(r"\$([0-9.]{1,20}) session", text):
                    self._used(cost_usd=_float(cost[1]))
        self._said(text + "\n", add=True)

    def _add(self, name: str, value: Any) -> None:
        number = _number(value, name)
        if number is not None:
            self._totals[name] = self._totals.get(name, 0) + number
            self._used(**{name: self._totals[name]})

    def _claude(self, event: dict[str, Any]) -> None:
        self._named(event.get("session_id"))
        kind = event.get("type")
        if kind == "assistant" and not event.get("parent_tool_use_id"):
            for block in _items(_dict(event.get("message")).get("content")):
                if block.get("type") == "text":
                    self._said(block.get("text"))
        if kind == "assistant":
            for block in _items(_dict(event.get("message")).get("content")):
                if block.get("type") == "tool_use" and self._once(block.get("id")):
                    self._called(block.get("name"), block.get("input"))
        elif kind == "result":
            usage = _dict(event.get("usage"))
            self._said(event.get("result"))
            self._used(
                cost_usd=event.get("total_cost_usd"),
                turns=event.get("num_turns"),
                input_tokens=_sum(
                    usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"
                ),
                output_tokens=usage.get("output_tokens"),
            )

    def _codex(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "thread.started":
            self._named(event.get("thread_id"))
        elif kind == "turn.completed":
            usage = _dict(event.get("usage"))
            self._add("turns", 1)
            self._add("input_tokens", usage.get("input_tokens"))
            self._add("output_tokens", usage.get("output_tokens"))
        elif kind == "item.completed":
            item = _dict(event.get("item"))
            match item.get("type"):
                case "agent_message":
                    self._said(item.get("text"))
                case "command_execution":
                    self._ran(_unwrapped(item.get("command")))
                case "file_change":
                    for change in _items(item.get("changes")):
                        self._wrote(change.get("path"))

    def _gemini(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "init":
            self._named(event.get("session_id"))
        elif kind == "message" and event.get("role") == "assistant":
            # A text comes in pieces, each marked as one of them; a tool ends it.
            self._said(event.get("content"), add=bool(event.get("delta")))
        elif kind == "tool_use" and self._once(event.get("tool_id")):
            self._called(event.get("tool_name"), event.get("parameters"))
            self.text = ""
        elif kind == "result":
            stats = _dict(event.get("stats"))
            self._used(
                input_tokens=stats.get("input_tokens"), output_tokens=stats.get("output_tokens")
            )

    def _opencode(self, event: dict[str, Any]) -> None:
        self._named(event.get("sessionID"))
        part = _dict(event.get("part"))
        match event.get("type"):
            case "text":
                self._said(part.get("text"))
            case "tool_use":
                if self._once(part.get("callID")):
                    self._called(part.get("tool"), _dict(part.get("state")).get("input"))
            case "step_finish":
                tokens = _dict(part.get("tokens"))
                cache = _dict(tokens.get("cache"))
                self._add("turns", 1)
                self._add("cost_usd", part.get("cost"))
                self._add("input_tokens", _sum({**cache, **tokens}, "input", "read", "write"))
                self._add("output_tokens", _sum(tokens, "output", "reasoning"))


class AcpReader(_Seen):
    """The same of an agent that speaks ACP: fed with the `params` of each session/update and with
    the result of each session/prompt."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._known: set[str] = set()
        self._talking = False

    def update(self, params: Mapping[str, Any]) -> None:
        if not isinstance(params, Mapping):
            return
        self._named(params.get("sessionId"))
        update = _dict(params.get("update"))
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._said(_dict(update.get("content")).get("text"), add=self._talking)
                self._talking = True
            case "tool_call" | "tool_call_update":
                self._talking = False
                self._tool(update)
            case "usage_update":
                cost = _dict(update.get("cost"))
                if cost.get("currency") == "USD":
                    self._used(cost_usd=cost.get("amount"))

    def ended(self, result: Mapping[str, Any]) -> None:
        """A prompt's result."""
        self._talking = False
        if not isinstance(result, Mapping):
            return
        usage = _dict(result.get("usage"))
        quota = _dict(_dict(result.get("_meta")).get("quota"))
        counts = _dict(quota.get("token_count"))  # Gemini's
        before = self.usage
        self._used(
            input_tokens=_more(
                before.input_tokens, usage.get("inputTokens", counts.get("input_tokens"))
            ),
            output_tokens=_more(
                before.output_tokens, usage.get("outputTokens", counts.get("output_tokens"))
            ),
            turns=_more(before.turns, 1),
        )

    def _tool(self, update: dict[str, Any]) -> None:
        identity = update.get("toolCallId")
        if not isinstance(identity, str) or len(identity) > 256:
            return
        kind = update.get("kind")
        if isinstance(kind, str) and len(self._kinds) < _MAX_CALLS:
            self._kinds[identity] = kind[:32]
        kind = self._kinds.get(identity)
        given = _dict(update.get("rawInput"))
        if kind == "execute":
            self._first(identity, self._ran, given.get("command", given.get("cmd")))
            if update.get("status") in ("completed", "failed") and identity not in self._known:
                # Some say the command as the call's title alone.
                self._first(identity, self._ran, update.get("title"))
        elif kind == "edit":
            for place in _items(update.get("locations")):
                self._first(identity, self._wrote, place.get("path"))
        for content in _items(update.get("content")):
            if content.get("type") == "diff":
                self._first(identity, self._wrote, content.get("path"))

    def _first(self, identity: str, keep: Callable[[Any], None], value: Any) -> None:
        """Updates of a call repeat what it is: each command counts once for it."""
        mark = (identity, str(value)[:256])
        if value is not None and mark not in self._told:
            if len(self._told) < _MAX_CALLS:
                self._told.add(mark)
                self._known.add(identity)
            keep(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: Any, name: str) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MAX_COUNT:  # nor is it infinite, or no number
        return None
    return float(value) if name == "cost_usd" else int(value)


def _sum(values: Mapping[str, Any], *names: str) -> int | None:
    found = [_number(values.get(name), name) for name in names]
    known = [int(number) for number in found if number is not None]
    return sum(known) if known else None


def _more(before: int | None, value: Any) -> int | None:
    """What was used until now and by one prompt more."""
    number = _number(value, "")
    return before if number is None else (before or 0) + int(number)


def _thousands(text: str) -> float | None:
    number = _float(text.removesuffix("k"))
    return number * 1000 if number is not None and text.endswith("k") else number


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unwrapped(command: Any) -> Any:
    """Codex says `/bin/bash -lc 'COMMAND'`: what was meant is COMMAND."""
    if not isinstance(command, str):
        return command
    match = re.match(
        r"(?:/\S+/)?(?:ba|z)?sh -l?c (['\"]?)(.*)\1\Z", command[: MAX_WORDS + 64], re.S
    )
    return match[2] if match else command
