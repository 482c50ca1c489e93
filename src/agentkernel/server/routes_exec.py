"""Commands over HTTP: to their end in one answer or as a stream, also in a sandbox of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from agentkernel.backends.base import Progress
from agentkernel.errors import NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.insight import Known
from agentkernel.kernel.kernel import LOCAL_OWNER, Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.server.app import Service, route, service_of
from agentkernel.server.bodies import Command, Exec, Run, RunStream, result_body
from agentkernel.server.problems import MAX_INPUT_JSON_BYTES, json_response, read_body
from agentkernel.server.streams import Frames, first_message, websocket


async def _exec(request: Request) -> Response:
    service = service_of(request)
    body = await read_body(request, Exec, most=MAX_INPUT_JSON_BYTES)
    work = service.kernel.run(
        request.path_params["id"],
        body.words(),
        body.options(),
        owner=LOCAL_OWNER,
        stdin=body.input(),
        output_bytes=body.output_bytes,
    )
    return json_response(result_body(await service.while_wanted(request.receive, work)))


async def _run(request: Request) -> Response:
    service = service_of(request)
    body = await read_body(request, Run, most=MAX_INPUT_JSON_BYTES)
    words, data = body.words(), body.input()

    async def work() -> ExecResult:
        id = new_id()
        async with _removing(service, id):
            await _make(service.kernel, id, body, body.ttl_seconds, None)
            return await service.kernel.run(
                id, words, body.options(), stdin=data, output_bytes=body.output_bytes
            )

    return json_response(result_body(await service.while_wanted(request.receive, work())))


async def _exec_stream(socket: WebSocket, frames: Frames) -> None:
    command = await first_message(socket, Command)
    await _stream(service_of(socket), frames, socket.path_params["id"], command)


async def _run_stream(socket: WebSocket, frames: Frames) -> None:
    service = service_of(socket)
    body = await first_message(socket, RunStream)
    body.command.words()  # wrong words need no sandbox

    kernel, id = service.kernel, new_id()
    async with _removing(service, id):
        await frames.prepare(
            lambda progress: _make(kernel, id, body.spec, body.ttl_seconds, progress)
        )
        for sentence in Known.of(await kernel.get(id, owner=LOCAL_OWNER)).notices:
            await frames.notice(sentence)
        await _stream(service, frames, id, body.command)


async def _stream(service: Service, frames: Frames, id: str, command: Command) -> None:
    kernel, options = service.kernel, command.options()
    async with kernel.exec(id, command.words(), options, owner=LOCAL_OWNER) as process:
        await frames.carry(
            process,
            stdin=options.stdin or options.pty is not None,
            output_bytes=command.output_bytes,
        )
        status = await kernel.judge(id, process.status, owner=LOCAL_OWNER)
    await frames.exit(status)


async def _make(
    kernel: Kernel, id: str, spec: SandboxSpec, ttl: float | None, progress: Progress | None
) -> None:
    """A sandbox of one command: whatever becomes of us, it does not outlive us."""
    ephemeral = msgspec.structs.replace(spec, ephemeral=True)
    await kernel.create(ephemeral, id=id, owned=True, ttl_seconds=ttl, progress=progress)


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
    route("POST", "/v1/sandboxes/{id}/exec", _exec),
    route("POST", "/v1/run", _run),
    WebSocketRoute("/v1/sandboxes/{id}/exec/stream", websocket(_exec_stream)),
    WebSocketRoute("/v1/run/stream", websocket(_run_stream)),
]
