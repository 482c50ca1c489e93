"""Sandboxes over HTTP: made, listed, shown, started, stopped, extended, probed, removed."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.kernel.store import Idempotency
from agentkernel.server.app import route, service_of
from agentkernel.server.bodies import Extend, NewSandbox, Probe, Stop, sandbox_body
from agentkernel.server.callers import caller_of, owner_of, permitted
from agentkernel.server.problems import json_response, read_body, read_query

EVERYONE: Final = "*"


class _Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: list[str] = []
    state: list[str] = []
    owner: str | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    limit: int = 100


async def _create(request: Request) -> Response:
    service = service_of(request)
    body = permitted(request, await read_body(request, NewSandbox))
    id = new_id()
    record = await service.kernel.create(
        body,
        name=body.name,
        owner=caller_of(request).owner,
        labels=body.labels,
        ttl_seconds=body.ttl_seconds,
        idle_seconds=body.idle_seconds,
        on_ttl=body.on_ttl,
        on_idle=body.on_idle,
        idempotency=_idempotency(request, body),
        id=id,
    )
    return json_response(sandbox_body(record), 201 if record.id == id else 200)


def _idempotency(request: Request, body: NewSandbox) -> Idempotency | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 256:
        raise InvalidInputError("an Idempotency-Key has 1 to 256 characters")
    # Where it is repeated from does not make it another one.
    wanted = msgspec.structs.replace(body, host_env={})
    same = msgspec.json.encode(wanted, order="deterministic")
    return Idempotency(key=key, fingerprint=hashlib.sha256(same).hexdigest())


async def _list(request: Request) -> Response:
    query = read_query(request, _Listing)
    labels = {}
    for entry in query.label:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise InvalidInputError(f"{entry!r} is not a label such as team=web")
        labels[name] = value
    caller = caller_of(request)
    owner = caller.owner if query.owner is None else query.owner
    if owner != caller.owner:
        caller.check("admin")
    page = await service_of(request).kernel.list(
        owner=None if owner == EVERYONE else owner,
        labels=labels,
        states=query.state,
        after=query.after,
        limit=query.limit,
    )
    return json_response(
        {"sandboxes": [sandbox_body(record) for record in page.records], "next": page.next}
    )


async def _show(request: Request) -> Response:
    kernel, id = service_of(request).kernel, request.path_params["id"]
    owner = owner_of(request)
    record = await kernel.get(id, owner=owner)
    known = await kernel.known(record.id, owner=owner)
    body: dict[str, Any] = sandbox_body(record)
    body |= {"effective": known.effective, "usage": known.usage}
    return json_response(body)


async def _start(request: Request) -> Response:
    kernel = service_of(request).kernel
    record = await kernel.start(request.path_params["id"], owner=owner_of(request))
    return json_response(sandbox_body(record))


async def _stop(request: Request) -> Response:
    body = await read_body(request, Stop)
    record = await service_of(request).kernel.stop(
        request.path_params["id"], owner=owner_of(request), grace_seconds=body.grace_seconds
    )
    return json_response(sandbox_body(record))


async def _extend(request: Request) -> Response:
    body = await read_body(request, Extend)
    record = await service_of(request).kernel.extend(
        request.path_params["id"], body.ttl_seconds, owner=owner_of(request)
    )
    return json_response(sandbox_body(record))


async def _probe(request: Request) -> Response:
    service, id = service_of(request), request.path_params["id"]
    await read_body(request, Probe)
    result = await service.while_wanted(
        request.receive, service.kernel.probe(id, owner=owner_of(request))
    )
    return json_response(msgspec.to_builtins(result))


async def _remove(request: Request) -> Response:
    await service_of(request).kernel.remove(request.path_params["id"], owner=owner_of(request))
    return Response(status_code=204)


ROUTES: list[BaseRoute] = [
    route("POST", "/v1/sandboxes", _create, needs="manage"),
    route("GET", "/v1/sandboxes", _list, needs="read"),
    route("GET", "/v1/sandboxes/{id}", _show, needs="read"),
    route("DELETE", "/v1/sandboxes/{id}", _remove, needs="manage"),
    route("POST", "/v1/sandboxes/{id}/start", _start, needs="manage"),
    route("POST", "/v1/sandboxes/{id}/stop", _stop, needs="manage"),
    route("POST", "/v1/sandboxes/{id}/extend", _extend, needs="manage"),
    route("POST", "/v1/sandboxes/{id}/probe", _probe, needs="manage"),
]
