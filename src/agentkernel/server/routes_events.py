"""Events over HTTP: a stream that a client takes up again where it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.ids import is_id
from agentkernel.kernel.store import EventRecord
from agentkernel.server.answers import Event, Gap, Problem
from agentkernel.server.app import Service, service_of
from agentkernel.server.callers import caller_of, owner_of
from agentkernel.server.operations import EVENTS, route
from agentkernel.server.problems import encode, problem

_PAGE: Final = 200


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    sandbox: str | None = None
    follow: bool = True


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    follow: bool = False


async def _events(request: Request, query: EventQuery) -> Response:
    return await stream_events(request, query)


async def stream_events(request: Request, query: EventQuery, kinds: Sequence[str] = ()) -> Response:
    """As they happened and happen; only of these kinds, if any are named."""
    service = service_of(request)
    caller = caller_of(request)
    owner = owner_of(request)
    seen = None if "admin" in caller.scopes else owner
    filters: dict[str, Any] = {"limit": _PAGE, "owner": seen, "kinds": kinds}
    if query.sandbox is not None:
        filters["sandbox_id"] = await _sandbox_id(service, query.sandbox, owner)
    after = last_seen(request, query.after)
    newest = (await service.kernel.events(0, limit=1)).newest
    if after is None:
        after = newest
    with service.stream():
        pass  # one too many is still an answer here
    return StreamingResponse(
        _follow(service, after, filters, until=None if query.follow else newest),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _logs(request: Request, query: LogQuery) -> Response:
    """As `/v1/events` of one sandbox, from its beginning."""
    chosen = EventQuery(query.after, request.path_params["id"], query.follow)
    return await stream_events(request, chosen)


async def _sandbox_id(service: Service, id: str, owner: str) -> str:
    """Events outlive their sandbox: an id that is not known any more still has some. A name that
    is not known has none, now or later."""
    try:
        return (await service.kernel.get(id, owner=owner)).id
    except NotFoundError:
        if not is_id(id):
            raise
        return id


def last_seen(request: Request, after: int | None) -> int | None:
    last = request.headers.get("last-event-id")
    if not last:
        return after
    if not (last.isascii() and last.isdigit() and len(last) < 19):
        raise InvalidInputError("Last-Event-ID is a number")
    return int(last)


async def _follow(
    service: Service, after: int, filters: dict[str, Any], *, until: int | None
) -> AsyncGenerator[bytes, None]:
    """Events as they come; `until`: it ends with the one of this number, which is there."""
    with service.stream():
        yield b": ready\n\n"
        end = asyncio.ensure_future(service.over())
        try:
            while not end.done():
                page = await service.kernel.events(after, **filters)
                if page.gap:
                    gap = Gap(oldest=page.oldest, newest=page.newest)
                    yield b"event: gap\ndata: " + encode(gap) + b"\n\n"
                for record in page.records:
                    if until is not None and record.seq > until:
                        return
                    yield _event(record)
                more = len(page.records) == _PAGE
                after = page.next
                if until is not None and not more:
                    return
                if not more and not await _news(service, after, end):
                    yield b": ping\n\n"
            yield b"event: error\ndata: " + encode(problem(end.result())) + b"\n\n"
        finally:
            end.cancel()


async def _news(service: Service, after: int, end: asyncio.Future[Any]) -> bool:
    """True as soon as there is something newer, or the daemon ends; False when it is time to show
    that we are still here."""
    news = asyncio.ensure_future(service.kernel.wait_for_events(after))
    seconds = service.bounds.heartbeat_seconds
    try:
        done, _ = await asyncio.wait(
            (news, end),
            timeout=seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        return bool(done)
    finally:
        news.cancel()


def _event(record: EventRecord) -> bytes:
    body = Event(
        seq=record.seq,
        at=record.at,
        kind=record.kind,
        sandbox_id=record.sandbox_id,
        body=record.body,
    )
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (record.seq, record.kind.encode(), encode(body))


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/events", _events, needs="read", id="streamEvents", tag="events",
        summary="What happens to sandboxes and jobs, as it happens",
        answers={200: EVENTS},
        events={"*": Event, "gap": Gap, "error": Problem},
        headers={"Last-Event-ID": "the last event that was seen; goes before `after`"},
    ),
    route(
        "GET", "/v1/sandboxes/{id}/logs", _logs, needs="read", id="streamSandboxLogs", tag="events",
        summary="What happened to a sandbox, also of one that is gone, by its id",
        answers={200: EVENTS},
        events={"*": Event, "gap": Gap, "error": Problem},
        headers={"Last-Event-ID": "the last event that was seen; goes before `after`"},
    ),
]  # fmt: skip
