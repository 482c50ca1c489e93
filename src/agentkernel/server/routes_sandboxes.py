"""Sandboxes over HTTP: made, looked at, changed, started, stopped, extended, probed, removed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.backends.base import Progress
from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.kernel.probe.findings import ProbeResult
from agentkernel.kernel.store import Idempotency, SandboxRecord
from agentkernel.kernel.store.store import MAX_PAGE
from agentkernel.kernel.updates import SandboxUpdate
from agentkernel.server import sse
from agentkernel.server.answers import (
    Ended,
    Problem,
    Sandbox,
    SandboxDetail,
    SandboxPage,
    SandboxUse,
    sandbox_detail,
    sandbox_of,
)
from agentkernel.server.app import service_of
from agentkernel.server.bodies import Extend, NewSandbox, Probe, Stop
from agentkernel.server.callers import caller_of, owner_of, permitted, secrets_owner
from agentkernel.server.operations import route
from agentkernel.server.output_events import Words
from agentkernel.server.problems import json_response
from agentkernel.server.telling import BEGUN, Telling

EVERYONE: Final = "*"


class SandboxQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: list[str] = []
    state: list[str] = []
    owner: str | None = None
    after: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100


async def _create(request: Request, body: NewSandbox) -> Response:
    service = service_of(request)
    body = permitted(request, body)
    id = new_id()

    async def work(progress: Progress | None = None) -> SandboxRecord:
        return await service.kernel.create(
            body,
            name=body.name,
            owner=caller_of(request).owner,
            secrets_of=secrets_owner(request),
            labels=body.labels,
            ttl_seconds=body.ttl_seconds,
            idle_seconds=body.idle_seconds,
            on_ttl=body.on_ttl,
            on_idle=body.on_idle,
            idempotency=_idempotency(request, body),
            id=id,
            progress=progress,
        )

    if sse.is_wanted(request):
        return await sse.stream(request, _creating(Telling(work, lambda sentence: sentence)))
    record = await work()
    return json_response(sandbox_of(record), 201 if record.id == id else 200)


async def _creating(telling: Telling[str, SandboxRecord]) -> AsyncGenerator[bytes, None]:
    """What is being made for it, such as an image, and then the sandbox."""
    async with aclosing(telling.words()) as sentences:
        await telling.begun()
        yield BEGUN
        async for sentence in sentences:
            yield sse.event("progress", Words(text=sentence))
    yield sse.event("sandbox", sandbox_of(telling.task.result()))


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


async def _list(request: Request, query: SandboxQuery) -> SandboxPage:
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
    return SandboxPage(sandboxes=[sandbox_of(record) for record in page.records], next=page.next)


async def _show(request: Request) -> SandboxDetail:
    kernel, id = service_of(request).kernel, request.path_params["id"]
    owner = owner_of(request)
    record = await kernel.get(id, owner=owner)
    return sandbox_detail(record, await kernel.known(record.id, owner=owner))


async def _usage(request: Request) -> SandboxUse:
    kernel, owner = service_of(request).kernel, owner_of(request)
    record = await kernel.get(request.path_params["id"], owner=owner)
    known = await kernel.known(record.id, owner=owner)
    return SandboxUse(state=record.state, usage=known.usage)


async def _update(request: Request, body: SandboxUpdate) -> Sandbox:
    kernel, id = service_of(request).kernel, request.path_params["id"]
    return sandbox_of(await kernel.update(id, body, owner=owner_of(request)))


async def _start(request: Request) -> Sandbox:
    kernel = service_of(request).kernel
    return sandbox_of(await kernel.start(request.path_params["id"], owner=owner_of(request)))


async def _stop(request: Request, body: Stop) -> Sandbox:
    record = await service_of(request).kernel.stop(
        request.path_params["id"], owner=owner_of(request), grace_seconds=body.grace_seconds
    )
    return sandbox_of(record)


async def _extend(request: Request, body: Extend) -> Sandbox:
    record = await service_of(request).kernel.extend(
        request.path_params["id"], body.ttl_seconds, owner=owner_of(request)
    )
    return sandbox_of(record)


async def _probe(request: Request, body: Probe) -> ProbeResult:
    service, id = service_of(request), request.path_params["id"]
    return await service.while_wanted(
        request.receive, service.kernel.probe(id, owner=owner_of(request))
    )


async def _remove(request: Request) -> None:
    await service_of(request).kernel.remove(request.path_params["id"], owner=owner_of(request))


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/sandboxes", _create, needs="manage", id="createSandbox", tag="sandboxes",
        summary="Make a sandbox and start it; 200: a repetition, it was there",
        answers={201: Sandbox, 200: Sandbox},
        events={"progress": Words, "sandbox": Sandbox, "error": Problem, "ping": Ended},
        headers={"Idempotency-Key": "makes it safe to repeat: 1 to 256 characters"},
    ),
    route(
        "GET", "/v1/sandboxes", _list, needs="read", id="listSandboxes", tag="sandboxes",
        summary="Sandboxes by label and state, in the order they were made",
    ),
    route(
        "GET", "/v1/sandboxes/{id}", _show, needs="read", id="getSandbox", tag="sandboxes",
        summary="A sandbox, what holds in it, what enforces that, and what it has used",
    ),
    route(
        "GET", "/v1/sandboxes/{id}/usage", _usage, needs="read", id="getSandboxUsage",
        tag="sandboxes", summary="What a sandbox has used since it was started, or in its last run",
    ),
    route(
        "PATCH", "/v1/sandboxes/{id}", _update, needs="manage", id="updateSandbox",
        tag="sandboxes",
        summary="Change its name, labels and clocks: what is left out stays, null takes away",
    ),
    route(
        "DELETE", "/v1/sandboxes/{id}", _remove, needs="manage", id="removeSandbox",
        tag="sandboxes", summary="End a sandbox and remove every trace but its events",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/start", _start, needs="manage", id="startSandbox",
        tag="sandboxes", summary="Run a stopped sandbox again",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/stop", _stop, needs="manage", id="stopSandbox",
        tag="sandboxes", summary="End every process of a sandbox and keep its files",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/extend", _extend, needs="manage", id="extendSandbox",
        tag="sandboxes", summary="Begin a sandbox's time to live anew, from now",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/probe", _probe, needs="manage", id="probeSandbox",
        tag="sandboxes", summary="Try from inside what a guest can reach",
    ),
]  # fmt: skip
