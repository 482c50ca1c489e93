"""Calls about agents' sessions, as the command line makes them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from agentkernel.client._sync.transport import LONG_CALL_SECONDS, Transport
from agentkernel.client.wire import segment

PATH: Final = "/v1/agent-sessions"


def get(transport: Transport, id: str) -> dict[str, Any]:
    session: dict[str, Any] = transport.call("GET", f"{PATH}/{segment(id)}")
    return session


def summary(transport: Transport, id: str) -> dict[str, Any]:
    found: dict[str, Any] = transport.call(
        "GET", f"{PATH}/{segment(id)}/summary", seconds=LONG_CALL_SECONDS
    )
    return found


def page(transport: Transport, **query: Any) -> list[dict[str, Any]]:
    """The newest first."""
    chosen = {key: value for key, value in query.items() if value is not None}
    sessions: list[dict[str, Any]] = transport.call("GET", PATH, query=chosen)["sessions"]
    return sessions


def stop(transport: Transport, id: str) -> dict[str, Any]:
    session: dict[str, Any] = transport.call("POST", f"{PATH}/{segment(id)}/stop")
    return session


def recording(transport: Transport, id: str) -> Generator[bytes, None]:
    return transport.pieces(f"{PATH}/{segment(id)}/recording")


def events(
    transport: Transport, id: str, *, follow: bool = False
) -> Generator[dict[str, Any], None]:
    """Its log so far, or to its end."""
    query = {"follow": int(follow)}
    for _, body in transport.events(f"{PATH}/{segment(id)}/events", query=query):
        if "seq" in body:
            yield body
