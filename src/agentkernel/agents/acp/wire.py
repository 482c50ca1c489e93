"""JSON-RPC 2.0 as lines, from a program that may write anything.

What must hold: nothing that comes raises, and no more of it is held than a line of MAX_LINE bytes.
A line that is no message is None: whoever reads counts it and goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

MAX_LINE: Final = 16 << 20
MAX_DEPTH: Final = 100
"""Editors refuse what is nested deeper than about that."""
MAX_PARTS: Final = 500_000
"""Brackets of one line: each is something to be made, which takes longer than to read it."""
MAX_ID: Final = 256
MAX_METHOD: Final = 256

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002

Id = int | str
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Request(msgspec.Struct, frozen=True):
    """`id` None: a notification, which is not answered."""

    method: str
    params: Any = None
    id: Id | None = None


class Failure(msgspec.Struct, frozen=True):
    """The `error` of an answer."""

    code: int
    message: str
    data: Any = None


class Answer(msgspec.Struct, frozen=True):
    """`error` None: it went well, and `result` is what came of it."""

    id: Id
    result: Any = None
    error: Failure | None = None


Message = Request | Answer


class Lines:
    """Bytes in pieces to whole lines. `dropped`: lines that were too long, of which nothing is
    kept."""

    def __init__(self, most: int = MAX_LINE) -> None:
        self.dropped = 0
        self._most = most
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete now, without their ends; empty ones are left out."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            start = end + 1
            line, skipped = bytes(self._rest), self._skipping
            self._rest.clear()
            self._skipping = False
            if not skipped and line.strip():
                yield line
        self._keep(data[start:])

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._rest) + len(piece) > self._most:
            self._rest.clear()
            self._skipping = True
            self.dropped += 1
            return
        self._rest += piece


def decode(line: bytes) -> Message | None:
    """The message of a line; None if it is none."""
    if line.count(b"{") + line.count(b"[") > MAX_PARTS:
        return None
    body = _parse(line)
    if not isinstance(body, dict) or _deep(line, body):
        return None
    id = body.get("id")
    if not (id is None or _is_id(id)):
        return None
    method = body.get("method")
    if method is not None:
        if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD:
            return None
        if "id" in body and id is None:
            return None  # a request that could not be answered
        return Request(method, body.get("params"), id)
    if id is None or not ("result" in body or "error" in body):
        return None
    if (error := body.get("error")) is not None:
        return Answer(id, error=_failure(error))
    return Answer(id, body.get("result"))


def encode(message: Message) -> bytes:
    """A line with its end."""
    body: dict[str, Any] = {"jsonrpc": "2.0"}
    if message.id is not None:
        body["id"] = message.id
    if isinstance(message, Request):
        body["method"] = message.method
        if message.params is not None:
            body["params"] = message.params
    elif message.error is not None:
        body["error"] = {"code": message.error.code, "message": message.error.message}
        if message.error.data is not None:
            body["error"]["data"] = message.error.data
    else:
        body["result"] = message.result
    return raw(body)


def raw(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body) + b"\n"


def _parse(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # Half a surrogate pair is what JavaScript writes of a text that it has cut: the message counts,
    # the half character does not.
    try:
        text = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(_SURROGATE.sub("\ufffd", text))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None


def _deep(line: bytes, body: Any) -> bool:
    """Whether it is nested deeper than allowed. Most lines have too few brackets for that."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    level = [body]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += (item for item in value.values() if isinstance(item, dict | list))
            elif isinstance(value, list):
                inner += (item for item in value if isinstance(item, dict | list))
        if not inner:
            return False
        level = inner
    return True


def _is_id(id: Any) -> bool:
    if isinstance(id, str):
        return len(id) <= MAX_ID
    return type(id) is int and -(1 << 63) <= id < 1 << 63


def _failure(error: Any) -> Failure:
    """Whatever an `error` is, it is one."""
    if not isinstance(error, dict):
        return Failure(INTERNAL_ERROR, "the answer is an error that says nothing")
    code, message = error.get("code"), error.get("message")
    return Failure(
        code if type(code) is int and abs(code) < 1 << 31 else INTERNAL_ERROR,
        message if isinstance(message, str) else "the answer is an error that says nothing",
        error.get("data"),
    )
