"""What clients ask of sessions of agents, and how they read what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import error_of

Progress = Callable[[str], None]


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
