"""Jobs over HTTP: started, listed, shown, attached to, signalled."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from agentkernel.errors import InvalidInputError
from agentkernel.guest.protocol import Channel
from agentkernel.server.app import route, service_of
from agentkernel.server.bodies import Command, Signal, job_body
from agentkernel.server.callers import owner_of
from agentkernel.server.problems import json_response, read_body, read_query
from agentkernel.server.streams import Frames, websocket
from agentkernel.server.tracing import traced

Offset = Annotated[int, Meta(ge=0, le=1 << 62)]


class _Attach(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stdout_offset: Offset = 0
    stderr_offset: Offset = 0
    follow: bool = True


async def _start(request: Request) -> Response:
    body = await read_body(request, Command)
    if body.pty is not None:
        raise InvalidInputError("a job has no terminal", hint="use a stream")
    job = await service_of(request).kernel.jobs.start(
        request.path_params["id"],
        body.words(),
        msgspec.structs.replace(traced(request, body.options()), output_bytes=body.output_bytes),
        owner=owner_of(request),
    )
    return json_response(job_body(job), 201)


async def _list(request: Request) -> Response:
    kernel, id = service_of(request).kernel, request.path_params["id"]
    jobs = await kernel.jobs.list(id, owner=owner_of(request))
    return json_response({"jobs": [job_body(job) for job in jobs]})


async def _show(request: Request) -> Response:
    kernel, id = service_of(request).kernel, request.path_params["job"]
    job = await kernel.jobs.get(id, owner=owner_of(request))
    return json_response(job_body(job))


async def _signal(request: Request) -> Response:
    body = await read_body(request, Signal)
    jobs, id = service_of(request).kernel.jobs, request.path_params["job"]
    if (body.signal is None) == (not body.kill):
        raise InvalidInputError("there is either signal or kill")
    if body.signal is not None:
        await jobs.signal(id, body.signal, owner=owner_of(request))
    else:
        await jobs.kill(id, owner=owner_of(request))
    return Response(status_code=204)


async def _attach(socket: WebSocket, frames: Frames) -> None:
    kernel, id = service_of(socket).kernel, socket.path_params["job"]
    query = read_query(socket, _Attach)
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
    route("POST", "/v1/sandboxes/{id}/jobs", _start, needs="exec"),
    route("GET", "/v1/sandboxes/{id}/jobs", _list, needs="read"),
    route("GET", "/v1/jobs/{job}", _show, needs="read"),
    route("POST", "/v1/jobs/{job}/signal", _signal, needs="exec"),
    websocket("/v1/jobs/{job}/attach", _attach, needs="exec"),
]
