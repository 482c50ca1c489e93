"""Jobs over HTTP: started, listed, shown, attached to, signalled."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from agentkernel.errors import InvalidInputError
from agentkernel.guest.protocol import Channel
from agentkernel.server.answers import Job, JobList, job_of
from agentkernel.server.app import service_of
from agentkernel.server.bodies import Command, Signal
from agentkernel.server.callers import owner_of
from agentkernel.server.operations import route
from agentkernel.server.streams import Frames, websocket

Offset = Annotated[int, Meta(ge=0, le=1 << 62)]


class Attach(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stdout_offset: Offset = 0
    stderr_offset: Offset = 0
    follow: bool = True


async def _start(request: Request, body: Command) -> Job:
    if body.pty is not None:
        raise InvalidInputError("a job has no terminal", hint="use a stream")
    job = await service_of(request).kernel.jobs.start(
        request.path_params["id"],
        body.words(),
        msgspec.structs.replace(body.options(), output_bytes=body.output_bytes),
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


async def _attach(socket: WebSocket, frames: Frames, query: Attach) -> None:
    kernel, id = service_of(socket).kernel, socket.path_params["job"]
    owner = owner_of(socket)
    job = await kernel.jobs.get(id, owner=owner)
    written = None if query.follow else await kernel.jobs.written(id, owner=owner)
    async with kernel.jobs.attach(
        id,
        owner=owner,
        stdout_offset=query.stdout_offset,
        stderr_offset=query.stderr_offset,
    ) as process:
        ended = await frames.carry(
            process,
            stdin=bool(job.options.get("stdin")),
            offsets={Channel.STDOUT: query.stdout_offset, Channel.STDERR: query.stderr_offset},
            until=written,
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
