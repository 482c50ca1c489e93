"""What the gateway itself answers: JSON for whoever reads it inside, mostly an agent.

Nothing here holds a secret. What comes from the guest (a path, a host) is only ever JSON's text.
"""

from __future__ import annotations

import json
from typing import Any

from agentkernel.network.gateway.flow import Flow

WHO = "the person who runs agentkernel on the host"
PATH_CHARACTERS = 512

REASONS = {
    400: b"Bad Request",
    403: b"Forbidden",
    408: b"Request Timeout",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    504: b"Gateway Timeout",
}


class Answer(Exception):
    """The request is not passed on, and this is why. `kind` is that of the event; `code` what a
    program decides by; `words` say it to people and agents."""

    def __init__(
        self,
        status: int,
        code: str,
        words: str,
        *,
        kind: str = "network.deny",
        rule: int | None = None,
        source: str = "",
        **details: Any,
    ) -> None:
        super().__init__(words)
        self.status = status
        self.code = code
        self.words = words
        self.kind = kind
        self.rule = rule
        self.source = source
        self.details = details


def denied(words: str, *, rule: int | None = None, source: str = "") -> Answer:
    return Answer(403, "network_denied", words, rule=rule, source=source)


def malformed(words: str) -> Answer:
    return Answer(400, "network_bad_request", f"the request was refused: {words}")


def late(part: str) -> Answer:
    return Answer(408, "network_bad_request", f"the request's {part} did not come in time")


def fault(words: str, **details: Any) -> Answer:
    """Allowed, but the other side can't be reached, trusted or understood."""
    return Answer(502, "network_fault", words, kind="network.fault", **details)


def blocked(words: str, reference: str) -> Answer:
    return Answer(403, "network_blocked", words, kind="network.blocked", secret=reference)


def limited(words: str) -> Answer:
    return Answer(403, "network_limit", words, kind="network.limit")


def short_path(path: str) -> str:
    return path if len(path) <= PATH_CHARACTERS else path[:PATH_CHARACTERS] + "…"


def body_of(answer: Answer, flow: Flow, method: str, path: str) -> bytes:
    """Without `how` where no rule would change the answer."""
    error: dict[str, Any] = {
        "code": answer.code,
        "message": answer.words,
        "host": flow.host,
        "port": flow.port,
        "method": method,
        "path": path,
        **answer.details,
    }
    place = f"{flow.host}:{flow.port}"
    if answer.code == "network_denied":
        error["rule"] = answer.rule
        error["who_can_change"] = WHO
        error["how"] = f"agentkernel network allow {flow.subject.id} {place}"
    if answer.code in ("network_denied", "network_fault"):
        error["why"] = f"agentkernel network why {flow.subject.id} {place}"
    return json.dumps({"error": error}, ensure_ascii=True, indent=1).encode() + b"\n"


def response_of(answer: Answer, flow: Flow, method: str, path: str) -> bytes:
    """The whole response; the connection ends with it."""
    body = body_of(answer, flow, method, path)
    head = (
        b"HTTP/1.1 %d %s\r\n"
        b"content-type: application/json\r\n"
        b"content-length: %d\r\n"
        b"cache-control: no-store\r\n"
        b"connection: close\r\n\r\n"
    ) % (answer.status, REASONS[answer.status], len(body))
    return head if method == "HEAD" else head + body
