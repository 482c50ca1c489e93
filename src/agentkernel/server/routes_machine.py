"""The machine and the daemon over HTTP: engines, health, and the log of actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel import __version__
from agentkernel.audit.entries import Entry
from agentkernel.audit.reading import Line
from agentkernel.kernel.engines import Engine
from agentkernel.kernel.health import Finding
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.store.store import MAX_PAGE
from agentkernel.server import sse
from agentkernel.server.answers import Ended, Problem
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of
from agentkernel.server.operations import route
from agentkernel.server.problems import json_response
from agentkernel.server.routes_events import last_seen

# How late a line of the log is told to those who follow it.
_POLL_SECONDS: Final = 0.25
_BATCH: Final = 200


class BackendQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    check: bool = False


class BackendList(msgspec.Struct, frozen=True, kw_only=True):
    backends: list[Engine]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`fit`: everything that is needed works."""

    version: str
    fit: bool
    findings: list[Finding]


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    sandbox: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    follow: bool = True


class AuditEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log as it stands. `hash` is that of the line before it."""

    hash: str


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest first. `next` is the `after` of the following page; null: this is the end."""

    entries: list[AuditEntry]
    next: int | None


async def _backends(request: Request, query: BackendQuery) -> BackendList:
    service = service_of(request)
    if not query.check:
        return BackendList(backends=await service.kernel.engines.look())
    caller_of(request).check("manage")  # a try makes sandboxes
    work = service.kernel.engines.check()
    return BackendList(backends=await service.while_wanted(request.receive, work))


async def _doctor(request: Request) -> Health:
    service = service_of(request)

    async def work() -> list[Finding]:
        return await service.kernel.engines.examine(await _everything(service.kernel))

    findings = await service.while_wanted(request.receive, work())
    fit = all(finding.state != "fail" for finding in findings)
    return Health(version=__version__, fit=fit, findings=findings)


async def _everything(kernel: Kernel) -> set[str]:
    """Ids of all sandboxes, whoever owns them."""
    found: set[str] = set()
    after = None
    while True:
        page = await kernel.list(after=after, limit=MAX_PAGE)
        found |= {record.id for record in page.records}
        if page.next is None:
            return found
        after = page.next


async def _audit(request: Request, query: AuditQuery) -> Response:
    kernel = service_of(request).kernel
    if sse.is_wanted(request):
        after = last_seen(request, query.after)
        return await sse.stream(request, _audit_events(kernel, after, query))
    lines = await kernel.audit_lines(query.after, query.limit)
    # As they stand, so that their hashes can be checked.
    entries = [msgspec.Raw(line.raw) for line in lines if _is_about(line, query.sandbox)]
    full = query.after is not None and len(lines) == query.limit
    last = lines[-1].entry.seq if full else None
    return json_response(AuditPage(entries=cast(Any, entries), next=last))


async def _audit_events(
    kernel: Kernel, after: int | None, query: AuditQuery
) -> AsyncGenerator[bytes, None]:
    follower = await kernel.follow_audit(after)
    yield b": ready\n\n"
    reading: asyncio.Future[list[Line]] | None = None
    try:
        while True:
            lines = follower.more()
            while True:
                reading = asyncio.ensure_future(asyncio.to_thread(_some, lines))
                if not (batch := await asyncio.shield(reading)):
                    break
                for line in batch:
                    if line.entry.seq > (after or 0) and _is_about(line, query.sandbox):
                        yield sse.event("entry", msgspec.Raw(line.raw), str(line.entry.seq))
            if not query.follow:
                return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        # A thread can't be cancelled: what it reads stays open until it has done so.
        if reading is not None:
            await asyncio.wait((reading,))
        follower.close()


def _some(lines: Iterator[Line]) -> list[Line]:
    return list(islice(lines, _BATCH))


def _is_about(line: Line, sandbox: str | None) -> bool:
    entry = line.entry
    return sandbox is None or sandbox in (entry.sandbox, entry.name, entry.args.get("asked"))


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/backends", _backends, needs="read", id="listBackends", tag="daemon",
        summary="The engines of this machine; `check=1` tries each, which takes seconds",
    ),
    route(
        "GET", "/v1/doctor", _doctor, needs="admin", id="getHealth", tag="daemon",
        summary="The machine and the install, tried: makes short-lived sandboxes, takes seconds",
    ),
    route(
        "GET", "/v1/audit", _audit, needs="admin", id="listAudit", tag="daemon",
        summary="Lines of the log of actions behind a number, or the newest; or as they come",
        answers={200: AuditPage},
        events={"entry": AuditEntry, "error": Problem, "ping": Ended},
        headers={"Last-Event-ID": "the last line that was seen; goes before `after`"},
    ),
]  # fmt: skip
