"""Many commands in one request, each in a sandbox of its own, a few at a time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.errors import AgentKernelError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.server.answers import Batch, BatchEntry, Problem, result_of
from agentkernel.server.app import Service, service_of
from agentkernel.server.bodies import BatchCommand, RunBatch, check_first
from agentkernel.server.callers import permitted
from agentkernel.server.one_command import OneCommand
from agentkernel.server.operations import route
from agentkernel.server.problems import MAX_INPUT_JSON_BYTES, problem
from agentkernel.server.tracing import traced


async def _run_batch(request: Request, body: RunBatch) -> Batch:
    """What one of them meets is told in its place, and the others go on; a body that is wrong is
    refused as a whole, before anything ran."""
    service = service_of(request)
    spec = permitted(request, body.spec)
    for command in body.commands:
        check_first(command.argv, command.shell, spec)
        command.input()
    free = asyncio.Semaphore(body.parallel)

    async def one(command: BatchCommand) -> BatchEntry:
        async with free:
            sandbox = OneCommand(service, request, spec, body.ttl_seconds)
            try:
                options = traced(request, command.options())
                return await _result(service, sandbox, command, options)
            except AgentKernelError as exc:
                return BatchEntry(error=Problem(**problem(exc)))

    async def all_of_them() -> Batch:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(command)) for command in body.commands]
        return Batch(results=[task.result() for task in tasks])

    return await service.while_wanted(request.receive, all_of_them())


async def _result(
    service: Service, sandbox: OneCommand, command: BatchCommand, options: ProcessOptions
) -> BatchEntry:
    async with sandbox.removed_then() as id:
        await sandbox.make()
        result = await service.kernel.run(
            id,
            await sandbox.words(command.argv, command.shell),
            options,
            stdin=command.input(),
            output_bytes=command.output_bytes,
        )
    return BatchEntry(result=result_of(result))


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/run/batch", _run_batch, needs="exec", id="runBatch", tag="commands",
        summary="Run many commands, each in a sandbox of its own, a few at a time",
        most_bytes=MAX_INPUT_JSON_BYTES,
    ),
]  # fmt: skip
