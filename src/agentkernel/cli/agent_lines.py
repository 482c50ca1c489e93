"""What a headless agent prints, as lines for people: its words, and one line for each thing it did.

Agents have events of their own, which are told apart by their shape; what is not known is not shown
(`--json` has all of it). All of it comes from inside: nothing is believed to be well formed, and
what is printed can do nothing to a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from agentkernel.cli.values import printable

_MOST_LINE: Final = 1 << 20
_MOST_WORDS: Final = 160
_MARK: Final = "● "
# Which of a tool's parameters says most about what it does.
_TELLING: Final = (
    "command", "cmd", "file_path", "filePath", "path", "absolute_path", "pattern", "query", "url",
    "description", "prompt", "name",
)  # fmt: skip


class Lines:
    """Takes what the agent writes to stdout, and gives lines to print."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skips = False
        self._text = ""

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, rest = data.split(b"\n")
        if whole:  # else a long line that comes in pieces is put together once
            whole[0] = bytes(self._rest) + whole[0]
            self._rest.clear()
        for line in whole:
            if self._skips:
                self._skips = False  # the end of one that was too long
            else:
                yield from self._line(line)
        if len(self._rest) + len(rest) > _MOST_LINE:
            self._skips = True
            self._rest.clear()
        elif not self._skips:
            self._rest += rest

    def update(self, params: dict[str, Any]) -> Iterator[str]:
        """Of an agent that speaks ACP: the params of a session/update."""
        update = params.get("update")
        if not isinstance(update, dict):
            return
        content = update.get("content")
        match update.get("sessionUpdate"):
            case "agent_message_chunk" if isinstance(content, dict):
                yield from self._piece(str(content.get("text", "")))
            case "tool_call":
                yield from self._said()
                yield printable(_short(f"{_MARK}{_words(update.get('title'))}"))
            case "tool_call_update" if update.get("status") == "failed":
                yield from self._said()
                yield "  failed"

    def end(self) -> Iterator[str]:
        if self._rest:
            yield from self._line(bytes(self._rest))
            self._rest.clear()
        yield from self._said()

    def _line(self, raw: bytes) -> Iterator[str]:
        event = _event(raw)
        if event is None:
            yield from self._said()
            yield printable(raw.decode("utf-8", "replace").rstrip("\r").expandtabs(4))
            return
        piece = _piece_of_text(event)
        if piece is not None:
            yield from self._piece(piece)
            return
        for text in lines_of(event):
            yield from self._said()
            yield text

    def _piece(self, piece: str) -> Iterator[str]:
        *lines, self._text = (self._text + piece).split("\n")
        for line in lines:
            yield printable(line.expandtabs(4))
        if len(self._text) > _MOST_WORDS * 100:
            yield from self._said()

    def _said(self) -> Iterator[str]:
        """Words that came in pieces, and whose line did not end."""
        if self._text:
            text, self._text = self._text, ""
            yield printable(text.expandtabs(4))


def lines_of(event: dict[str, Any]) -> list[str]:
    """Of one event; none: it says nothing to people."""
    try:
        found = [*_message(event), *_item(event), *_part(event), *_plain(event)]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []  # it has another shape than such an event has
    return [
        printable(line.expandtabs(4))
        for kind, text in found
        for line in (text.split("\n") if kind == "text" else [_short(text)])
    ]


Found = Iterator[tuple[str, str]]


def _event(raw: bytes) -> dict[str, Any] | None:
    if not raw.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "type" in event else None


def _piece_of_text(event: dict[str, Any]) -> str | None:
    """Words in pieces, whose lines need not end with them."""
    if event.get("type") == "message" and event.get("role") == "assistant":
        content = event.get("content")
        if event.get("delta") and isinstance(content, str):
            return content
    return None


def _message(event: dict[str, Any]) -> Found:
    """Messages with blocks, as Claude Code and others after it have them."""
    if event["type"] == "assistant" and isinstance(event.get("message"), dict):
        content = event["message"].get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "text" and block["text"].strip():
                yield "text", block["text"].strip("\n")
            elif block.get("type") == "tool_use":
                yield "tool", _tool(block["name"], block.get("input"))
    elif event["type"] == "user" and isinstance(event.get("message"), dict):
        content = event["message"].get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result" and block.get("is_error"):
                yield "tool", f"  failed: {_words(block.get('content'))}"
    elif event["type"] == "system" and event.get("subtype") == "api_retry":
        why = event.get("error_status") or event.get("error")
        tries = f"try {event.get('attempt')} of {event.get('max_retries')}"
        yield "tool", f"the model does not answer ({_words(why)}): {_words(tries)}"
    elif event["type"] == "result" and event.get("is_error"):
        yield "tool", f"failed: {_words(event.get('result') or event.get('subtype'))}"


def _item(event: dict[str, Any]) -> Found:
    """Items that begin and are completed, as Codex has them."""
    if event["type"] == "item.completed":
        item = event["item"]
        match item.get("type") or item.get("item_type"):
            case "agent_message" | "assistant_message":
                yield "text", item["text"].strip("\n")
            case "command_execution":
                code = item.get("exit_code")
                ended = f"  (exit {code})" if code else ""
                yield "tool", f"{_tool('run', {'command': item['command']})}{ended}"
            case "file_change":
                for change in item["changes"]:
                    yield "tool", _tool(change.get("kind") or "edit", {"path": change["path"]})
            case "mcp_tool_call":
                yield "tool", _tool(f"{item.get('server')}.{item.get('tool')}", {})
            case "web_search":
                yield "tool", _tool("search", {"query": item.get("query")})
            case "error":
                yield "tool", f"error: {_words(item.get('message'))}"
    elif event["type"] in ("error", "turn.failed"):
        error = event.get("error", event)
        if isinstance(error, dict):
            error = error.get("message") or (error.get("data") or {}).get("message") or error
        yield "tool", f"error: {_words(error)}"


def _part(event: dict[str, Any]) -> Found:
    """Parts of a message, as OpenCode has them."""
    part = event.get("part")
    if isinstance(part, dict):
        if event["type"] == "text" and part["text"].strip():
            yield "text", part["text"].strip("\n")
        elif event["type"] == "tool_use":
            yield "tool", _tool(part["tool"], (part.get("state") or {}).get("input"))


def _plain(event: dict[str, Any]) -> Found:
    """Events that are flat, as Gemini CLI has them."""
    if event["type"] == "tool_use" and "tool_name" in event:
        yield "tool", _tool(event["tool_name"], event.get("parameters"))
    elif event["type"] == "tool_result" and event.get("status") == "error":
        error = event.get("error")
        words = error.get("message") if isinstance(error, dict) else event.get("output")
        yield "tool", f"  failed: {_words(words)}"
    elif event["type"] == "message" and event.get("role") == "assistant":
        content = event["content"]
        if isinstance(content, str) and content.strip() and not event.get("delta"):
            yield "text", content.strip("\n")


def _tool(name: Any, given: Any) -> str:
    words = ""
    if isinstance(given, dict):
        words = next((_words(given[key]) for key in _TELLING if given.get(key)), "")
    return f"{_MARK}{_words(name)}  {words}".rstrip()


def _words(value: Any) -> str:
    if isinstance(value, list):
        value = " ".join(
            str(entry.get("text", "")) if isinstance(entry, dict) else str(entry)
            for entry in value[:64]
        )
    return " ".join(str(value)[: _MOST_WORDS * 4].split())


def _short(text: str) -> str:
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 1]}…"
