"""Commands over HTTP: to their end in one answer or as a stream, also in a sandbox of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from agentkernel.backends.base import Progress
from agentkernel.errors import NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.insight import Known
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.server.app import Service, route, service_of
from agentkernel.server.bodies import Command, Exec, Run, RunStream, result_body
from agentkernel.server.callers import caller_of, owner_of, permitted
from agentkernel.server.problems import MAX_INPUT_JSON_BYTES, json_response, read_body
from agentkernel.server.streams import Frames, first_message, websocket
from agentkernel.server.tracing import VARIABLE, traced


async def _exec(request: Request) -> Response:
    service = service_of(request)
    body = await read_body(request, Exec, most=MAX_INPUT_JSON_BYTES)
    work = service.kernel.run(
        request.path_params["id"],
        body.words(),
        traced(request, body.options()),
        owner=owner_of(request),
        stdin=body.input(),
        output_bytes=body.output_bytes,
    )
    return json_response(result_body(await service.while_wanted(request.receive, work)))


async def _run(request: Request) -> Response:
    service = service_of(request)
    body = permitted(request, await read_body(request, Run, most=MAX_INPUT_JSON_BYTES))
    words, data, owner = body.words(), body.input(), caller_of(request).owner

    # The environment of the sandbox is the command's: what it says there is its own word.
    options = body.options()
    if VARIABLE not in body.env:
        options = traced(request, options)

    async def work() -> ExecResult:
        id = new_id()
        async with _removing(service, id):
            await _make(service.kernel, id, owner, body, body.ttl_seconds, None)
            return await service.kernel.run(
                id, words, options, stdin=data, output_bytes=body.output_bytes
            )

    return json_response(result_body(await service.while_wanted(request.receive, work())))


async def _exec_stream(socket: WebSocket, frames: Frames) -> None:
    command = await first_message(socket, Command)
    await _stream(socket, frames, socket.path_params["id"], command)


async def _run_stream(socket: WebSocket, frames: Frames) -> None:
    service = service_of(socket)
    body = await first_message(socket, RunStream)
    body.command.words()  # wrong words need no sandbox

    spec = permitted(socket, body.spec)
    kernel, id, owner = service.kernel, new_id(), caller_of(socket).owner
    async with _removing(service, id):
        await frames.prepare(
            lambda progress: _make(kernel, id, owner, spec, body.ttl_seconds, progress)
        )
        for sentence in Known.of(await kernel.get(id, owner=owner)).notices:
            await frames.notice(sentence)
        await _stream(socket, frames, id, body.command)


async def _stream(socket: WebSocket, frames: Frames, id: str, command: Command) -> None:
    kernel, owner = service_of(socket).kernel, owner_of(socket)
    options = traced(socket, command.options())
    async with kernel.exec(id, command.words(), options, owner=owner) as process:
        await frames.carry(
            process,
            stdin=options.stdin or options.pty is not None,
            output_bytes=command.output_bytes,
        )
        status = await kernel.judge(id, process.status, owner=owner)
    await frames.exit(status)


async def _make(
    kernel: Kernel,
    id: str,
    owner: str,
    spec: SandboxSpec,
    ttl: float | None,
    progress: Progress | None,
) -> None:
    """A sandbox of one command: whatever becomes of us, it does not outlive us."""
    ephemeral = msgspec.structs.replace(spec, ephemeral=True)
    await kernel.create(
        ephemeral, id=id, owner=owner, owned=True, ttl_seconds=ttl, progress=progress
    )


@contextlib.asynccontextmanager
async def _removing(service: Service, id: str) -> AsyncIterator[None]:
    """At the end of the block there is no sandbox `id`, however it ends and if there ever was."""
    try:
        yield
    finally:
        await service.finish(_remove(service.kernel, id))


async def _remove(kernel: Kernel, id: str) -> None:
    with contextlib.suppress(NotFoundError):
        await kernel.remove(id, reason="the command ended")


ROUTES: list[BaseRoute] = [
    route("POST", "/v1/sandboxes/{id}/exec", _exec, needs="exec"),
    route("POST", "/v1/run", _run, needs="exec"),
    websocket("/v1/sandboxes/{id}/exec/stream", _exec_stream, needs="exec"),
    websocket("/v1/run/stream", _run_stream, needs="exec"),
]
