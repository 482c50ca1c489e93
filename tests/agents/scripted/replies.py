"""An answer on its way back: JSON at once, or events as they would come from a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CHUNK = 24
"""Characters of a text in one event: every text but the shortest comes in several."""


@dataclass(frozen=True)
class Reply:
    """`events`: the body is a stream of them, written one by one."""

    status: int = 200
    body: bytes = b""
    events: list[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), None, {"content-type": "application/json"})


def as_events(events: Iterable[bytes]) -> Reply:
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return Reply(200, b"", list(events), headers)


def event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{head}data: {text}\n\n".encode()


def pieces(text: str) -> list[str]:
    return [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)] or [""]
