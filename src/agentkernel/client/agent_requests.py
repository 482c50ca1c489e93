"""What clients ask of sessions of agents, and how they read what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import error_of

Progress = Callable[[str], None]
OnPermission = Callable[[dict[str, Any]], str | None]
"""Given the params of a session/request_permission: the id of the option that is chosen, or None
for none of them."""


class AgentTurn(NamedTuple):
    """What became of a prompt. `text`: what the agent said, whole. `updates`: all that it told of,
    as ACP has it. `usage`: of the session so far, as far as the agent says; `raw`: its own
    answer."""

    text: str
    stop_reason: str | None
    usage: dict[str, Any]
    updates: list[dict[str, Any]]
    raw: dict[str, Any]

    @classmethod
    def of(
        cls, ended: Mapping[str, Any], updates: list[dict[str, Any]], usage: dict[str, Any]
    ) -> AgentTurn:
        said = [message_text(update) for update in updates]
        raw = ended.get("result")
        return cls(
            text="".join(said),
            stop_reason=ended.get("stop_reason"),
            usage=usage,
            updates=updates,
            raw=raw if isinstance(raw, dict) else {},
        )


def message_text(update: Mapping[str, Any]) -> str:
    """What an update says to the user; most say nothing."""
    content = update.get("content")
    if update.get("sessionUpdate") != "agent_message_chunk" or not isinstance(content, dict):
        return ""
    text = content.get("text")
    return text if isinstance(text, str) else ""


def session_body(daemon: Any, fields: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """An AgentRequest: what is left out is the daemon's to choose. In a sandbox that is there, or
    to go on in one, there is no spec."""
    body = {key: value for key, value in fields.items() if value is not None}
    if spec or not (body.get("sandbox") or body.get("resume")):
        body["spec"] = {"host_env": host_environment(daemon), **spec}
    return body


def turn_result(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a turn ended, if the event says so. Raises if it failed."""
    if event.get("kind") == "ended":
        raise error_of({"code": "conflict", "detail": "the agent ended before its turn did"})
    body = event.get("body") or {}
    if event.get("kind") != "prompt" or "text" in body:
        return None
    if "error" in body:
        raise error_of({"code": body.get("code", "conflict"), "detail": body["error"]})
    return dict(body)
