"""Jobs over HTTP: started, listed, shown, read, attached to, signalled."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from agentkernel.errors import InvalidInputError
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.store.records import JobState
from agentkernel.kernel.store.store import MAX_PAGE
from agentkernel.server import sse
from agentkernel.server.answers import Job, JobList, JobPage, job_of
from agentkernel.server.app import service_of
from agentkernel.server.bodies import Command, Signal, Size
from agentkernel.server.callers import owner_of
from agentkernel.server.operations import EVENTS, route
from agentkernel.server.output_events import COMMAND_EVENTS, Delivered, Writer, outputs
from agentkernel.server.streams import Frames, websocket
from agentkernel.server.tracing import traced

Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
_DELIVERED: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


class Attach(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stdout_offset: Offset = 0
    stderr_offset: Offset = 0
    follow: bool = True


class AttachTerminal(Attach, frozen=True, forbid_unknown_fields=True):
    """`rows`, `columns`: of the terminal that the job's is shown on; its program draws all of it
    anew. `recent`: not from the offsets on, but the last so many bytes. `whole`: nothing may be
    missed; others who are attached to the job wait."""

    rows: Size | None = None
    columns: Size | None = None
    recent: Offset | None = None
    whole: bool = False


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sandbox: str | None = None
    state: list[JobState] = []
    after: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100


async def _start(request: Request, body: Command) -> Job:
    job = await service_of(request).kernel.jobs.start(
        request.path_params["id"],
        body.words(),
        msgspec.structs.replace(traced(request, body.options()), output_bytes=body.output_bytes),
        owner=owner_of(request),
    )
    return job_of(job)


async def _list(request: Request) -> JobList:
    kernel, id = service_of(request).kernel, request.path_params["id"]
    jobs = await kernel.jobs.list(id, owner=owner_of(request))
    return JobList(jobs=[job_of(job) for job in jobs])


async def _show(request: Request) -> Job:
    kernel, id = service_of(request).kernel, request.path_params["job"]
    return job_of(await kernel.jobs.get(id, owner=owner_of(request)))


async def _signal(request: Request, body: Signal) -> None:
    jobs, id = service_of(request).kernel.jobs, request.path_params["job"]
    if (body.signal is None) == (not body.kill):
        raise InvalidInputError("there is either signal or kill")
    if body.signal is not None:
        await jobs.signal(id, body.signal, owner=owner_of(request))
    else:
        await jobs.kill(id, owner=owner_of(request))


async def _find(request: Request, query: JobQuery) -> JobPage:
    page = await service_of(request).kernel.jobs.find(
        owner=owner_of(request),
        sandbox=query.sandbox,
        states=query.state,
        after=query.after,
        limit=query.limit,
    )
    return JobPage(jobs=[job_of(job) for job in page.records], next=page.next)


async def _output(request: Request, query: Attach) -> Response:
    offsets = {Channel.STDOUT: query.stdout_offset, Channel.STDERR: query.stderr_offset}
    if last := request.headers.get("last-event-id"):
        match = _DELIVERED.fullmatch(last)
        if match is None:
            raise InvalidInputError("Last-Event-ID is an id that this stream gave, such as 120-0")
        offsets = dict(zip(offsets, map(int, match.groups()), strict=True))
    return await sse.stream(request, _output_events(request, offsets, follow=query.follow))


async def _output_events(
    request: Request, offsets: dict[Channel, int], *, follow: bool
) -> AsyncGenerator[bytes, None]:
    kernel, id = service_of(request).kernel, request.path_params["job"]
    owner = owner_of(request)
    job = await kernel.jobs.get(id, owner=owner)
    written = None if follow else await kernel.jobs.written(id, owner=owner)
    writer = Writer(ids=offsets)
    async with kernel.jobs.attach(
        id,
        owner=owner,
        stdout_offset=offsets[Channel.STDOUT],
        stderr_offset=offsets[Channel.STDERR],
    ) as process:
        async with aclosing(outputs(process, writer, until=written)) as events:
            async for event in events:
                yield event
        if written is not None and process.status is None:
            out, err = (process.offsets[channel] for channel in offsets)
            yield sse.event("caught_up", Delivered(stdout_offset=out, stderr_offset=err))
            return
    yield writer.exit(await kernel.jobs.outcome(job))


async def _attach(socket: WebSocket, frames: Frames, query: AttachTerminal) -> None:
    kernel, id = service_of(socket).kernel, socket.path_params["job"]
    owner = owner_of(socket)
    job = await kernel.jobs.get(id, owner=owner)
    written = None
    if not query.follow or query.recent is not None:
        written = await kernel.jobs.written(id, owner=owner)
    offsets = {Channel.STDOUT: query.stdout_offset, Channel.STDERR: query.stderr_offset}
    if query.recent is not None and written is not None:
        offsets = {channel: max(0, written[channel] - query.recent) for channel in offsets}
    async with kernel.jobs.attach(
        id,
        owner=owner,
        stdout_offset=offsets[Channel.STDOUT],
        stderr_offset=offsets[Channel.STDERR],
        whole=query.whole,
    ) as process:
        terminal = bool(job.options.get("pty"))
        if terminal and query.rows is not None and query.columns is not None:
            process.redraw(query.rows, query.columns)
        ended = await frames.carry(
            process,
            stdin=terminal or bool(job.options.get("stdin")),
            offsets={Channel.STDOUT: query.stdout_offset, Channel.STDERR: query.stderr_offset},
            until=None if query.follow else written,
        )
        if not ended:
            await frames.caught_up(process)
            return
    await frames.exit(await kernel.jobs.outcome(job))


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/sandboxes/{id}/jobs", _start, needs="exec", id="startJob", tag="jobs",
        summary="Start a command that goes on without anybody listening", status=201,
    ),
    route(
        "GET", "/v1/sandboxes/{id}/jobs", _list, needs="read", id="listSandboxJobs", tag="jobs",
        summary="The jobs of a sandbox",
    ),
    route(
        "GET", "/v1/jobs", _find, needs="read", id="listJobs", tag="jobs",
        summary="The jobs of all sandboxes, in the order they were started",
    ),
    route(
        "GET", "/v1/jobs/{job}/output", _output, needs="read", id="streamJobOutput", tag="jobs",
        summary="A job's output from any offset and live, as events; nobody else may be attached",
        answers={200: EVENTS}, events={**COMMAND_EVENTS, "caught_up": Delivered},
        headers={"Last-Event-ID": "the last event that was seen; goes before the offsets"},
    ),
    route(
        "GET", "/v1/jobs/{job}", _show, needs="read", id="getJob", tag="jobs", summary="A job",
    ),
    route(
        "POST", "/v1/jobs/{job}/signal", _signal, needs="exec", id="signalJob", tag="jobs",
        summary="Send a job a signal, or end it with all it started",
    ),
    websocket(
        "/v1/jobs/{job}/attach", _attach, needs="exec", id="attachJob", tag="jobs",
        summary="A job's output from any offset and live, and its stdin",
    ),
]  # fmt: skip
