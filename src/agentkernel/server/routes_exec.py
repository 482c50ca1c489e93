"""Commands over HTTP: to their end in one answer, as events, or both ways over a WebSocket; in a
sandbox that is there, or in one of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from agentkernel.guest.processes import GuestProcess, ProcessOptions
from agentkernel.kernel.commands import ExecResult, feeding
from agentkernel.kernel.insight import Known
from agentkernel.kernel.ports import ports_of
from agentkernel.server import sse
from agentkernel.server.answers import Result, result_of
from agentkernel.server.app import service_of
from agentkernel.server.bodies import Command, Exec, Run, RunStream, check_first
from agentkernel.server.callers import owner_of, permitted
from agentkernel.server.one_command import OneCommand
from agentkernel.server.operations import route
from agentkernel.server.output_events import (
    COMMAND_EVENTS,
    RUN_EVENTS,
    PublishedAt,
    Words,
    Writer,
    outputs,
)
from agentkernel.server.problems import MAX_INPUT_JSON_BYTES, json_response
from agentkernel.server.streams import Frames, websocket
from agentkernel.server.tracing import VARIABLE, traced


async def _exec(request: Request, body: Exec) -> Response:
    service, id = service_of(request), request.path_params["id"]
    words, data, options = body.words(), body.input(), traced(request, body.options())
    if sse.is_wanted(request):
        events = _command_events(request, id, words, options, data, body.output_bytes)
        return await sse.stream(request, events)
    work = service.kernel.run(
        id,
        words,
        options,
        owner=owner_of(request),
        stdin=data,
        output_bytes=body.output_bytes,
    )
    return json_response(result_of(await service.while_wanted(request.receive, work)))


async def _run(request: Request, body: Run) -> Response:
    service = service_of(request)
    body = permitted(request, body)
    body.check()
    data = body.input()
    sandbox = OneCommand(service, request, body, body.ttl_seconds)
    # The environment of the sandbox is the command's: what it says there is its own word.
    options = body.options()
    if VARIABLE not in body.env:
        options = traced(request, options)
    if sse.is_wanted(request):
        events = _run_events(request, sandbox, body, options, data)
        return await sse.stream(request, events)

    async def work() -> ExecResult:
        async with sandbox.removed_then() as id:
            await sandbox.make()
            words = await sandbox.words(body.argv, body.shell)
            return await service.kernel.run(
                id, words, options, stdin=data, output_bytes=body.output_bytes
            )

    return json_response(result_of(await service.while_wanted(request.receive, work())))


async def _run_events(
    request: Request,
    sandbox: OneCommand,
    body: Run,
    options: ProcessOptions,
    data: bytes,
) -> AsyncGenerator[bytes, None]:
    async with sandbox.removed_then() as id:
        async with aclosing(sandbox.make_telling()) as texts:
            async for text in texts:
                yield sse.event("progress", Words(text=text))
        for sentence in await _notices(request, id):
            yield sse.event("notice", Words(text=sentence))
        for entry in await _published(request, id) if sandbox.publishes else ():
            yield sse.event("published", entry)
        words = await sandbox.words(body.argv, body.shell)
        async with aclosing(
            _command_events(request, id, words, options, data, body.output_bytes)
        ) as events:
            async for event in events:
                yield event


async def _command_events(
    request: Request,
    id: str,
    words: Sequence[str],
    options: ProcessOptions,
    data: bytes,
    output_bytes: int | None,
) -> AsyncGenerator[bytes, None]:
    """From `start` to `exit`. Closing it ends the command."""
    kernel, owner = service_of(request).kernel, owner_of(request)
    writer = Writer(room=output_bytes)
    options = msgspec.structs.replace(options, stdin=bool(data))
    async with kernel.exec(id, words, options, owner=owner) as process:
        async with feeding(process, data), aclosing(outputs(process, writer)) as events:
            async for event in events:
                yield event
        status = await kernel.judge(id, process.status, owner=owner)
    yield writer.exit(status)


async def _exec_stream(socket: WebSocket, frames: Frames, first: Command) -> None:
    await _stream(socket, frames, socket.path_params["id"], first, first.words())


async def _run_stream(socket: WebSocket, frames: Frames, first: RunStream) -> None:
    spec = permitted(socket, first.spec)
    check_first(first.command.argv, first.command.shell, spec)  # wrong words need no sandbox
    sandbox = OneCommand(service_of(socket), socket, spec, first.ttl_seconds)
    async with sandbox.removed_then() as id:
        await frames.prepare(sandbox.make)
        for sentence in await _notices(socket, id):
            await frames.notice(sentence)
        for entry in await _published(socket, id) if sandbox.publishes else ():
            await frames.published(entry.port, entry.address, entry.host_port)
        words = await sandbox.words(first.command.argv, first.command.shell)
        await _stream(socket, frames, id, first.command, words)


async def _stream(
    socket: WebSocket, frames: Frames, id: str, command: Command, words: Sequence[str]
) -> None:
    kernel, owner = service_of(socket).kernel, owner_of(socket)
    options = traced(socket, command.options())
    process: GuestProcess
    async with kernel.exec(id, words, options, owner=owner) as process:
        await frames.carry(
            process,
            stdin=options.stdin or options.pty is not None,
            output_bytes=command.output_bytes,
        )
        status = await kernel.judge(id, process.status, owner=owner)
    await frames.exit(status)


async def _notices(connection: HTTPConnection, id: str) -> list[str]:
    kernel = service_of(connection).kernel
    return Known.of(await kernel.get(id, owner=owner_of(connection))).notices


async def _published(connection: HTTPConnection, id: str) -> list[PublishedAt]:
    record = await service_of(connection).kernel.get(id, owner=owner_of(connection))
    return [
        PublishedAt(port=entry.port, address=entry.address, host_port=entry.host_port)
        for entry in ports_of(record)
        if entry.address is not None
    ]


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/sandboxes/{id}/exec", _exec, needs="exec", id="execInSandbox", tag="commands",
        summary="Run a command to its end in a sandbox that runs",
        answers={200: Result}, events=COMMAND_EVENTS, most_bytes=MAX_INPUT_JSON_BYTES,
    ),
    route(
        "POST", "/v1/run", _run, needs="exec", id="run", tag="commands",
        summary="Run a command to its end in a sandbox of its own, which is removed then",
        answers={200: Result}, events=RUN_EVENTS, most_bytes=MAX_INPUT_JSON_BYTES,
    ),
    websocket(
        "/v1/sandboxes/{id}/exec/stream", _exec_stream, needs="exec", id="streamExecInSandbox",
        tag="commands", summary="A command in a sandbox, both directions while it runs",
    ),
    websocket(
        "/v1/run/stream", _run_stream, needs="exec", id="streamRun", tag="commands",
        summary="The same in a sandbox of its own, which ends with the stream",
    ),
]  # fmt: skip
