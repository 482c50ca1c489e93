"""The API's description of itself: OpenAPI 3.1, built from what the routes declare.

What OpenAPI has no words for stands in extensions: `x-scope` (what a caller needs), `x-events`
(what an event stream holds, by event name; `*` is any other), `x-websocket` (the messages of a
stream), `x-codes` (which errors there are), `x-most-bytes` (of a body).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from agentkernel.errors import all_error_types
from agentkernel.server.answers import Problem
from agentkernel.server.bodies import Control
from agentkernel.server.controls import ServerControl
from agentkernel.server.operations import EVENTS, JSON, Content, Operation, operation_of
from agentkernel.server.problems import repeatable

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = "application/problem+json"
_TAGS: Final = {
    "daemon": "The process itself, and this machine.",
    "sandboxes": "Made, looked at, started, stopped, removed.",
    "commands": "In the foreground: they end with whoever asked.",
    "jobs": "In the background: they go on without anybody listening.",
    "files": "Every call runs inside the sandbox; a link of the guest's leads nowhere else.",
    "events": "What happened, in order.",
    "network": "What a sandbox may reach, and what became of it.",
    "images": "What sandboxes are made from: fetched, loaded, saved, removed. Everybody's.",
    "volumes": "Directories that outlive sandboxes, with what is in them.",
    "agents": "AI agents that run in sandboxes: what is known of them, and their installations.",
    "secrets": "What sandboxes may use without knowing it; no answer has a value.",
    "tokens": "Who may call over a network, and what.",
}
# Requests of clients, and lines that leave out what is not there.
_SPARSE: Final = {"Control", "AuditEntry", "Actor"}
_PATH_WORDS: Final = {
    "id": "Id or name of the sandbox.",
    "job": "Id of the job.",
    "name": "Name of the secret.",
    "token": "Id or name of the token.",
    "port": "Number of the port inside.",
    "volume": "Id or name of the volume.",
    "template": "Name of the template.",
    "agent": "Name of the agent.",
    "session": "Id of the session.",
}
_STATUS_WORDS: Final = {
    101: "The stream begins.",
    200: "Done.",
    201: "Made.",
    202: "Heard.",
    204: "Done; there is nothing to say.",
    206: "The range that was asked for.",
}
_ABOUT: Final = """\
What the agentkernel daemon speaks on its socket. JSON bodies have no unknown fields; times are Unix
seconds. A command that fails is a result, not an error. docs/reference/http-api.md says more."""


def operations() -> list[Operation]:
    from agentkernel.server.app import all_routes

    return [operation for route in all_routes() if (operation := operation_of(route))]


@functools.cache
def document_bytes() -> bytes:
    """As served: made once, when it is first asked for."""
    return msgspec.json.encode(document())


def document_text() -> str:
    """As checked in."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def document() -> dict[str, Any]:
    found = operations()
    schemas = _Schemas(found)
    paths: dict[str, dict[str, Any]] = {}
    for operation in found:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, schemas
        )
    built = {
        "openapi": "3.1.0",
        "info": {"title": "agentkernel", "version": "1", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {
                "Problem": {
                    "description": "What went wrong.",
                    "content": {_PROBLEM: {"schema": schemas.of(Problem)}},
                }
            },
        },
    }
    # As read from JSON: a default may be a tuple.
    described: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(built))
    return described


class _Schemas:
    """The schemas of all types, by type; those with a name are components."""

    def __init__(self, found: Iterable[Operation]) -> None:
        types: dict[Any, None] = dict.fromkeys((Problem, Control, ServerControl))
        for operation in found:
            contents = (operation.body, *operation.answers.values())
            types |= dict.fromkeys(kind for kind in contents if _is_type(kind))
            types |= dict.fromkeys(operation.events.values())
        made, components = msgspec.json.schema_components(list(types), ref_template=_REF)
        self._made = dict(zip(types, made, strict=True))
        self.components = {name: components[name] for name in sorted(components)}
        asked = [self._made[kind] for one in found if _is_type(kind := one.body)]
        self._require(_named(asked, components))
        self.components["Problem"]["properties"]["code"] = {"enum": sorted(_codes())}
        self.components["Problem"]["x-codes"] = _codes()
        self.components["Failed"]["properties"]["code"] = {"enum": sorted(_codes())}

    def _require(self, asked: set[str]) -> None:
        """What only answers hold is written with every field that has a value, a default too."""
        for name in self.components.keys() - asked - _SPARSE:
            schema = self.components[name]
            fields = schema.get("properties", {})
            always = schema.get("required", [])
            if fields:
                schema["required"] = [
                    field for field in fields if field in always or "default" in fields[field]
                ]
            for field in fields.values():
                field.pop("default", None)

    def of(self, kind: Any) -> dict[str, Any]:
        schema: dict[str, Any] = self._made[kind]
        return schema


def _named(schemas: Iterable[Any], components: Mapping[str, Any]) -> set[str]:
    """The components that these lead to."""
    found: set[str] = set()
    waiting = list(schemas)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                waiting.append(components[name])
    return found


def _is_type(content: Content) -> bool:
    return content is not None and not isinstance(content, str)


def _codes() -> dict[str, Any]:
    return {
        kind.code: {"status": kind.status, "retryable": kind.retryable}
        for kind in sorted(all_error_types(), key=lambda kind: kind.code)
    }


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    parameters = [*_path_parameters(operation.path), *_headers(operation.headers)]
    if operation.query is not None:
        parameters += query_parameters(operation.query)
    body: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "x-scope": operation.needs,
    }
    if parameters:
        body["parameters"] = parameters
    if operation.websocket:
        body["x-websocket"] = _websocket(operation, schemas)
    elif operation.body is not None:
        body["requestBody"] = _request_body(operation, schemas)
    answers = {
        str(status): _answer(operation, status, content, schemas)
        for status, content in sorted(operation.answers.items())
    }
    body["responses"] = {**answers, "default": {"$ref": "#/components/responses/Problem"}}
    return body


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_WORDS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def _headers(headers: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "description": words, "schema": {"type": "string"}}
        for name, words in headers.items()
    ]


def query_parameters(kind: type[Any]) -> list[dict[str, Any]]:
    """A parameter that may be left out has no null: a query can't say it."""
    _, components = msgspec.json.schema_components((kind,), ref_template=_REF)
    schema = components[kind.__name__]
    parameters = []
    for name, given in schema["properties"].items():
        plain = {key: value for key, value in given.items() if (key, value) != ("default", None)}
        if choices := plain.pop("anyOf", None):
            (only,) = [choice for choice in choices if choice != {"type": "null"}]
            plain |= only
        parameter: dict[str, Any] = {"name": name, "in": "query", "schema": plain}
        if name in schema.get("required", ()):
            parameter["required"] = True
        if name in repeatable(kind):
            parameter |= {"style": "form", "explode": True}
        parameters.append(parameter)
    return parameters


def _request_body(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if isinstance(operation.body, str):
        # A form has parts of any name; all else is bytes.
        schema = {"type": "object"} if operation.body.startswith("multipart/") else {}
        return {"content": {operation.body: {"schema": schema}}, "required": True}
    body = {"content": {JSON: {"schema": schemas.of(operation.body)}}}
    return {**body, "required": operation.body_required, "x-most-bytes": operation.most_bytes}


def _answer(
    operation: Operation, status: int, content: Content, schemas: _Schemas
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _STATUS_WORDS[status]}
    kinds: dict[str, Any] = {}
    if isinstance(content, str) and content != EVENTS:
        kinds[content] = {"schema": {"type": "object"} if content == JSON else {}}
    elif _is_type(content):
        kinds[JSON] = {"schema": schemas.of(content)}
    if operation.events and status == 200:
        kinds[EVENTS] = {
            "schema": {},
            "x-events": {name: schemas.of(kind) for name, kind in operation.events.items()},
        }
    return {**answer, "content": kinds} if kinds else answer


def _websocket(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    body: dict[str, Any] = {
        "channels": {"0": "stdin, from the client", "1": "stdout", "2": "stderr", "3": "control"},
        "client-control": schemas.of(Control),
        "server-control": schemas.of(ServerControl),
    }
    if operation.body is not None:
        body["first-message"] = schemas.of(operation.body)
    return body
