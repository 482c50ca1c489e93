"""Paths of messages between an editor and an agent that is inside: each place of the protocol that
has one. What is not known passes as it is.

`to_agent` is for what the editor says, `to_editor` for what the agent says; answers are of the
method that they answer. The agent's own calls of fs/… and terminal/… mean paths inside and are
answered there, so they are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agentkernel.agents.acp.paths import PathMap

Change = Callable[[Any], Any]


class Rewriter:
    """`terminal_text`: what is shown in place of a terminal of the agent's, which the editor does
    not know; its id is given."""

    def __init__(self, paths: PathMap, terminal_text: Callable[[str], str]) -> None:
        self._paths = paths
        self._terminal_text = terminal_text
        to_guest, uri_to_guest = _text(paths.to_guest), _text(paths.uri_to_guest)
        to_host, uri_to_host = _text(paths.to_host), _text(paths.uri_to_host)
        self._to_agent = _Places(to_guest, uri_to_guest, None)
        self._to_editor = _Places(to_host, uri_to_host, self._terminal)

    def request_to_agent(self, method: str, params: Any) -> Any:
        return self._to_agent.change(REQUESTS, method, params)

    def answer_to_editor(self, method: str, result: Any) -> Any:
        return self._to_editor.change(ANSWERS, method, result)

    def request_to_editor(self, method: str, params: Any) -> Any:
        return self._to_editor.change(CLIENT_REQUESTS, method, params)

    def _terminal(self, content: dict[str, Any]) -> dict[str, Any]:
        id = content.get("terminalId")
        text = self._terminal_text(id if isinstance(id, str) else "")
        return {"type": "content", "content": {"type": "text", "text": text}}


class _Places:
    """One direction. Each method of it takes a part of a message and gives it back rewritten; what
    has not the form of that part is given back as it is."""

    def __init__(self, path: Change, uri: Change, terminal: Change | None) -> None:
        self._path = path
        self._uri = uri
        self._terminal = terminal

    def change(self, places: Mapping[str, str], method: str, body: Any) -> Any:
        part = places.get(method)
        if part is None:
            part = next((name for start, name in _STARTS if method.startswith(start)), None)
        return body if part is None else getattr(self, part)(body)

    def session(self, body: Any) -> Any:
        """session/new, load, resume, fork: where it works, and its MCP servers."""
        return _with(
            body,
            cwd=self._path,
            additionalDirectories=_each(self._path),
            mcpServers=_each(self.mcp_server),
        )

    def mcp_server(self, body: Any) -> Any:
        value = _text(self._path)
        return _with(
            body,
            command=value,
            args=_each(value),
            env=_each(lambda entry: _with(entry, value=value)),
        )

    def sessions(self, body: Any) -> Any:
        """The answer of session/list."""
        one = lambda entry: _with(  # noqa: E731
            entry, cwd=self._path, additionalDirectories=_each(self._path)
        )
        return _with(body, sessions=_each(one))

    def prompt(self, body: Any) -> Any:
        return _with(body, prompt=_each(self.block))

    def block(self, body: Any) -> Any:
        """A content block: resource_link, image and resource have an address."""
        return _with(body, uri=self._uri, resource=lambda inner: _with(inner, uri=self._uri))

    def update(self, body: Any) -> Any:
        """session/update."""
        return _with(body, update=self._one_update)

    def _one_update(self, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        match body.get("sessionUpdate"):
            case "tool_call" | "tool_call_update":
                return self.tool_call(body)
            case "plan_update":
                return _with(body, plan=lambda plan: _with(plan, uri=self._uri))
            case _:
                return _with(body, content=self.block)

    def tool_call(self, body: Any) -> Any:
        return _with(
            body,
            content=_each(self._tool_content),
            locations=_each(lambda place: _with(place, path=self._path)),
        )

    def _tool_content(self, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        match body.get("type"):
            case "content":
                return _with(body, content=self.block)
            case "diff":
                return _with(body, path=self._path)
            case "terminal" if self._terminal is not None:
                return self._terminal(body)
            case _:
                return body

    def permission(self, body: Any) -> Any:
        return _with(body, toolCall=self.tool_call)

    def addresses(self, body: Any) -> Any:
        """Of documents and suggested edits every address, wherever it is."""
        if isinstance(body, dict):
            return {
                key: self._uri(value) if key in ("uri", "workspaceUri") else self.addresses(value)
                for key, value in body.items()
                if key != "_meta"
            } | ({"_meta": body["_meta"]} if "_meta" in body else {})
        return [self.addresses(item) for item in body] if isinstance(body, list) else body


REQUESTS: Final = {
    "session/new": "session",
    "session/load": "session",
    "session/resume": "session",
    "session/fork": "session",
    "session/list": "session",
    "session/prompt": "prompt",
}
ANSWERS: Final = {"session/list": "sessions"}
CLIENT_REQUESTS: Final = {
    "session/update": "update",
    "session/request_permission": "permission",
}
_STARTS: Final = (("document/", "addresses"), ("nes/", "addresses"))


def _with(body: Any, **changes: Change) -> Any:
    """A copy in which these members, if they are there, are changed."""
    if not isinstance(body, dict):
        return body
    return body | {name: change(body[name]) for name, change in changes.items() if name in body}


def _each(change: Change) -> Change:
    return lambda items: [change(item) for item in items] if isinstance(items, list) else items


def _text(change: Callable[[str], str]) -> Change:
    return lambda value: change(value) if isinstance(value, str) else value
