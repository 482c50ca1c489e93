"""Carrying out a command for a model: its output collected, its progress told, its end for sure."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Annotated, NamedTuple

import anyio
from msgspec import Meta

from agentkernel.client._async.commands import AsyncCommandStream
from agentkernel.client.results import CommandResult
from agentkernel.errors import AgentKernelError
from agentkernel.mcp.pages import Outputs
from agentkernel.mcp.progress import Report, telling
from agentkernel.mcp.registry import Body
from agentkernel.outcomes import Outcome, signal_name

# What a killed command has to end in before its connection is closed, which ends it as well.
_KILL_SECONDS = 5.0


class Ended(NamedTuple):
    result: CommandResult
    stdout: bytes
    stderr: bytes
    seconds: float
    notices: list[str]


class CommandBody(Body):
    """How a command ended."""

    outcome: Annotated[
        str,
        Meta(description="exited, signaled, timeout, oom (out of memory), not_started or lost"),
    ]
    stdout: str
    stderr: str
    duration_seconds: float
    exit_code: Annotated[int, Meta(description="Only if it exited")] | None = None
    signal: Annotated[str, Meta(description="What ended it, such as SIGKILL")] | None = None
    reason: Annotated[str, Meta(description="Why it could not be started")] | None = None
    stdout_cursor: (
        Annotated[str, Meta(description="stdout was cut; the tool output pages on from here")]
        | None
    ) = None
    stderr_cursor: (
        Annotated[str, Meta(description="stderr was cut; the tool output pages on from here")]
        | None
    ) = None
    dropped_bytes: Annotated[int, Meta(description="Output beyond what is kept, lost")] = 0
    not_utf8: Annotated[
        list[str], Meta(description="Streams whose bytes are not UTF-8 and were replaced by marks")
    ] = []
    notices: Annotated[list[str], Meta(description="What does not hold in the sandbox")] = []


async def carry(
    stream: AsyncCommandStream, report: Report, *, stdin: str | None, kill: bool
) -> Ended:
    """Runs it to its end. Whoever cancels this ends the command with all that it started; `kill`:
    by a signal first, as its sandbox stays."""
    begin = time.monotonic()
    pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    feeding: asyncio.Task[None] | None = None
    opened = False
    async with telling(report) as progress:
        try:
            await stream.open()
            opened = True
            if stdin is not None:
                feeding = asyncio.create_task(_feed(stream, stdin))
            async for chunk in stream:
                pieces[chunk.stream].append(chunk.data)
                progress.last = chunk.data or progress.last
        except BaseException as exc:
            if kill and opened and not isinstance(exc, AgentKernelError):
                await _kill(stream)
            raise
        finally:
            if feeding is not None:
                feeding.cancel()
            with anyio.CancelScope(shield=True):
                await stream.close()
    return Ended(
        stream.result,
        b"".join(pieces["stdout"]),
        b"".join(pieces["stderr"]),
        time.monotonic() - begin,
        stream.notices,
    )


async def _feed(stream: AsyncCommandStream, stdin: str) -> None:
    # A command that does not want its input ends before it has all of it.
    with contextlib.suppress(AgentKernelError):
        await stream.write(stdin)
        await stream.close_stdin()


async def _kill(stream: AsyncCommandStream) -> None:
    with (
        anyio.move_on_after(_KILL_SECONDS, shield=True),
        contextlib.suppress(AgentKernelError),
    ):
        await stream.kill()
        await stream.wait()


def described(ended: Ended, outputs: Outputs, owner: str) -> tuple[str, CommandBody]:
    """As text and as data. Both hold all of it: clients show models one or the other."""
    result = ended.result
    stdout, stderr = outputs.shown(owner, ended.stdout), outputs.shown(owner, ended.stderr)
    body = CommandBody(
        outcome=result.outcome.value,
        exit_code=result.exit_code,
        signal=None if result.signal is None else signal_name(result.signal),
        reason=_reason(result),
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_cursor=stdout.cursor,
        stderr_cursor=stderr.cursor,
        dropped_bytes=result.dropped_bytes,
        not_utf8=[name for name, out in (("stdout", stdout), ("stderr", stderr)) if not out.exact],
        duration_seconds=round(ended.seconds, 3),
        notices=ended.notices,
    )
    lines = [f"{in_words(result)}, after {ended.seconds:.1f} s"]
    for name, shown in (("stdout", stdout), ("stderr", stderr)):
        if shown.text:
            mark = "" if shown.exact else " (bytes that are not UTF-8 are replaced by marks)"
            lines += [f"--- {name}{mark}", shown.text.removesuffix("\n")]
    if result.dropped_bytes:
        lines.append(f"--- {result.dropped_bytes} bytes of output were more than is kept, and lost")
    lines += [f"note: {notice}" for notice in ended.notices]
    return "\n".join(lines), body


def in_words(result: CommandResult) -> str:
    match result.outcome:
        case Outcome.EXITED:
            return f"exit code {result.exit_code}"
        case Outcome.SIGNALED:
            return f"ended by {signal_name(result.signal or 0)}"
        case Outcome.TIMEOUT:
            return "ended because its time was over"
        case Outcome.OOM:
            return "ended because it ran out of memory"
        case Outcome.NOT_STARTED:
            return f"could not be started: {_reason(result)}"
        case _:
            return "lost with its sandbox; how it ended is not known"


def _reason(result: CommandResult) -> str | None:
    if result.outcome is not Outcome.NOT_STARTED:
        return None
    return f"{result.stage or 'unknown stage'}: {result.errno or 'unknown reason'}"
