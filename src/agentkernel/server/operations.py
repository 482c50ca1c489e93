"""What a route is, declared once: how its request is read, what it answers, who may call it.

The types of a request stand in the handler's own signature: `query` is read from the query and
`body` from the JSON body, each as its annotation says, and a handler that returns a Struct answers
with it. The same declaration is what `openapi` writes down, so that the two can't differ.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentkernel.server.callers import Scope as Needed
from agentkernel.server.callers import caller_of
from agentkernel.server.problems import (
    MAX_JSON_BYTES,
    json_response,
    problem_response,
    read_body,
    read_query,
)

Handler = Callable[..., Awaitable[Any]]
Tag = Literal[
    "daemon", "sandboxes", "commands", "jobs", "files", "events", "network", "images", "volumes",
    "secrets", "tokens", "agents",
]  # fmt: skip
BYTES: Final = "application/octet-stream"
TAR: Final = "application/x-tar"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
JSON: Final = "application/json"
# A type of a body, or the media type of one that is no JSON.
Content = type[Any] | str | None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path. `answers`: what comes with each status, a type for JSON, a media type
    for anything else, None for nothing. `events`: what an event stream can hold, by name; beside
    JSON it is sent to those who accept it. `websocket`: see `streams`."""

    id: str
    method: str
    path: str
    summary: str
    tag: Tag
    needs: Needed
    query: type[Any] | None = None
    body: Content = None
    body_required: bool = False
    most_bytes: int = MAX_JSON_BYTES
    headers: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[int, Content] = field(default_factory=dict)
    events: Mapping[str, Any] = field(default_factory=dict)
    websocket: bool = False


def route(
    method: str,
    path: str,
    handler: Handler,
    *,
    needs: Needed,
    id: str,
    summary: str,
    tag: Tag,
    status: int = 200,
    answers: Mapping[int, Content] | None = None,
    upload: str | None = None,
    most_bytes: int = MAX_JSON_BYTES,
    headers: Mapping[str, str] | None = None,
    events: Mapping[str, Any] | None = None,
) -> Route:
    """A route whose every failure is an answer.

    `status` goes with what the handler returns; one that returns a Response says in `answers` what
    that can be. `upload`: the media type of a body that the handler reads itself. `headers`: those
    that mean something here, each with a sentence.
    """
    query, body, returned = _signature(handler)
    declared = dict(answers or {})
    if inspect.isclass(returned) and issubclass(returned, msgspec.Struct):
        declared[status] = returned
    elif returned is type(None):
        declared[204] = None
    operation = Operation(
        id=id,
        method=method,
        path=path,
        summary=summary,
        tag=tag,
        needs=needs,
        query=query,
        body=upload or body,
        body_required=body is not None and needs_a_field(body),
        most_bytes=most_bytes,
        headers=headers or {},
        answers=declared,
        events=events or {},
    )

    async def answer(request: Request) -> Response:
        try:
            caller_of(request).check(needs)
            given: dict[str, Any] = {}
            if query is not None:
                given["query"] = read_query(request, query)
            if body is not None:
                given["body"] = await read_body(request, body, most=most_bytes)
            result = await handler(request, **given)
            if isinstance(result, Response):
                return result
            return Response(status_code=204) if result is None else json_response(result, status)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as exc:
            return problem_response(exc)

    return declare(Route(path, _Endpoint(answer), methods=[method]), operation)


class _Endpoint:
    """A handler as an application: Starlette's own way there has a layer for failures, of which
    there are none here."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive, send))
        await response(scope, receive, send)


R = typing.TypeVar("R")
_declared: Final = "agentkernel_operation"


def declare(route: R, operation: Operation) -> R:
    setattr(route, _declared, operation)
    return route


def operation_of(route: Any) -> Operation | None:
    """What a route was declared as. None: it is not ours."""
    found: Operation | None = getattr(route, _declared, None)
    return found


def _signature(handler: Handler) -> tuple[type[Any] | None, type[Any] | None, Any]:
    hints = typing.get_type_hints(handler)
    return hints.get("query"), hints.get("body"), hints.get("return")


def needs_a_field(kind: type[Any]) -> bool:
    """Whether an empty object is no `kind`."""
    return any(field.required for field in msgspec.structs.fields(kind))
