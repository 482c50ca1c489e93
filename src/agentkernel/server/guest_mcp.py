"""The Model Context Protocol for whatever runs inside a sandbox: one message, one answer.

Without sessions and without streams, so that nothing is lost with a daemon: a client goes on with
the next one. The protocol's package is not needed for that little, and is not there in every
installation. Whatever comes is a guest's: it gets an answer of the protocol, never a trace.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from agentkernel import __version__
from agentkernel.errors import AgentKernelError, InvalidInputError
from agentkernel.server.problems import log
from agentkernel.texts import encodable

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
Effect = Literal["reads", "changes", "destroys"]
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a tool found out: text for a model, and the same as data."""

    text: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Tool:
    """`schema`: of its arguments."""

    name: str
    title: str
    description: str
    effect: Effect
    schema: dict[str, Any]
    call: Callable[[Any, Arguments], Awaitable[Answer]]

    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {
                "readOnlyHint": self.effect == "reads",
                "destructiveHint": self.effect == "destroys",
                "openWorldHint": False,
            },
        }


class Failure(Exception):
    """A message that can't be answered as it asks."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Protocol:
    """The tools of one kind of box. `subject`, of each call, is what they are bound to."""

    def __init__(self, tools: Mapping[str, Tool], instructions: str) -> None:
        self._tools = tools
        self._instructions = instructions

    async def answer(self, data: bytes, subject: Any) -> bytes | None:
        """The answer to one message; None: it wants none."""
        id: Any = None
        try:
            message = _decoded(data)
            id = message.get("id")
            if not isinstance(id, str | int | None) or isinstance(id, bool):
                id = None
                raise Failure(INVALID_REQUEST, "the id is neither a text nor a number")
            method = message.get("method")
            if method is None and ("result" in message or "error" in message):
                return None  # an answer to a question that was never asked
            if not isinstance(method, str) or message.get("jsonrpc") != "2.0":
                raise Failure(INVALID_REQUEST, "this is no message of JSON-RPC 2.0")
            if "id" not in message:
                return None
            params = message.get("params") or {}
            if not isinstance(params, dict):
                raise Failure(INVALID_PARAMS, "params is not an object")
            told: dict[str, Any] = {"result": await self._result(method, params, subject)}
        except Failure as exc:
            told = {"error": {"code": exc.code, "message": exc.words}}
        return msgspec.json.encode(encodable({"jsonrpc": "2.0", "id": id, **told}))

    async def _result(self, method: str, params: dict[str, Any], subject: Any) -> dict[str, Any]:
        if method == "initialize":
            wanted = params.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {
                    "name": "agentkernel",
                    "title": "This sandbox's own tools",
                    "version": __version__,
                },
                "instructions": self._instructions,
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [tool.described() for tool in self._tools.values()]}
        if method == "tools/call":
            return await self._call(params, subject)
        raise Failure(METHOD_NOT_FOUND, "there is no such method")

    async def _call(self, params: dict[str, Any], subject: Any) -> dict[str, Any]:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Failure(INVALID_PARAMS, "there is no such tool")
        try:
            found = await tool.call(subject, params.get("arguments") or {})
        except AgentKernelError as error:
            return _failed(error)
        except Exception as error:
            # Not the message: it may hold what a guest wrote, or a secret.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("a guest's tool failed: %s\n%s", type(error).__name__, places)
            return _failed(AgentKernelError("the tool failed", hint="tell the user"))
        told: dict[str, Any] = {"content": [{"type": "text", "text": found.text}]}
        if found.body is not None:
            told["structuredContent"] = found.body
        return told


def read_arguments(given: Arguments, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as exc:
        raise InvalidInputError(str(exc)) from None


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Written out in place: models and clients understand little more of JSON Schema than that.
    Preconditions: fields are plain values."""
    (_,), parts = msgspec.json.schema_components((kind,), ref_template="{name}")
    schema: dict[str, Any] = dict(parts[kind.__name__])
    for word in ("title", "description"):
        schema.pop(word, None)
    schema.setdefault("properties", {})
    return schema


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        message = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Failure(PARSE_ERROR, "this is no JSON") from None
    if not isinstance(message, dict):
        raise Failure(INVALID_REQUEST, "one message at a time")
    return message


def _failed(error: AgentKernelError) -> dict[str, Any]:
    text = f"{error.code}: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    return {"content": [{"type": "text", "text": text}], "isError": True}
