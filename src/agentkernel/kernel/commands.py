"""Commands in a running sandbox: what may be started, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from agentkernel import faults
from agentkernel.backends.base import Sandbox
from agentkernel.errors import GuestTimeoutError, InvalidInputError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus, GuestProcess, Outcome, ProcessOptions
from agentkernel.guest.protocol import Channel

_SIGKILL = 9
# Starting a process takes milliseconds, in a starved sandbox seconds.
START_SECONDS = 30.0


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished command with what it wrote. `truncated`: more was written than was to be kept."""

    status: ExitStatus
    stdout: bytes
    stderr: bytes
    truncated: bool
    dropped_bytes: int


def start_command(
    sandbox: Sandbox, argv: Sequence[str], options: ProcessOptions, *, id: str | None = None
) -> GuestProcess:
    """Starts a command whose environment is the sandbox's with the caller's on top."""
    if not argv or any("\0" in word for word in argv):
        raise InvalidInputError("a command needs at least one word, and none with a NUL")
    for key, value in options.env.items():
        if not key or "=" in key or "\0" in key or "\0" in value:
            raise InvalidInputError(f"{key!r} is not a name of an environment variable")
    if options.user is not None:
        sandbox.check_user(options.user)
    environment = {**sandbox.environment, **options.env}
    options = msgspec.structs.replace(options, env=environment)
    faults.point("exec.before")
    return GuestProcess.start(sandbox.channel, argv, options, id=id)


async def until_started(process: GuestProcess) -> None:
    """Returns when the process runs, has ended, or could not be started. Raises GuestTimeoutError
    if agentd says nothing, another SandboxUnavailableError if it is lost with its sandbox."""
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.started()
    except SandboxUnavailableError:
        raise
    except TimeoutError:
        process.release()
        raise GuestTimeoutError(
            f"agentd did not start the command within {START_SECONDS:g} s",
            hint="the sandbox may be stopped or starved; stop it and start it again",
        ) from None
    faults.point("exec.started")


async def until_started_or_lost(process: GuestProcess) -> None:
    """The same for those to whom a lost command is an outcome, which its output tells."""
    try:
        await until_started(process)
    except GuestTimeoutError:
        raise
    except SandboxUnavailableError:
        pass


def judge(sandbox: Sandbox, status: ExitStatus | None) -> ExitStatus:
    """The outcome as the host sees it: it knows why the kernel killed, agentd does not. An engine
    may be killed as a whole for what a command took."""
    if status is None:
        return ExitStatus(outcome=Outcome.OOM if sandbox.was_out_of_memory() else Outcome.LOST)
    killed = status.outcome is Outcome.SIGNALED and status.signal == _SIGKILL
    if killed and sandbox.was_out_of_memory():
        return msgspec.structs.replace(status, outcome=Outcome.OOM, signal=None)
    return status


async def run_command(
    sandbox: Sandbox,
    argv: Sequence[str],
    options: ProcessOptions | None = None,
    *,
    stdin: bytes = b"",
    output_bytes: int | None = None,
) -> ExecResult:
    """Runs a command to its end and keeps at most `output_bytes` of each of its streams; as many as
    the sandbox's profile says, if none is given.

    A sandbox that goes away meanwhile is the outcome `lost`, not an exception.
    """
    options = msgspec.structs.replace(options or ProcessOptions(), stdin=bool(stdin))
    if output_bytes is None:
        output_bytes = sandbox.blueprint.limits.output_bytes
    process = start_command(sandbox, argv, options)
    try:
        async with feeding(process, stdin):
            await until_started_or_lost(process)
            kept, dropped = await _collect(process, output_bytes)
    finally:
        process.release()
    status = judge(sandbox, process.status)
    return ExecResult(
        status=status,
        stdout=bytes(kept[Channel.STDOUT]),
        stderr=bytes(kept[Channel.STDERR]),
        truncated=dropped > 0,
        dropped_bytes=dropped + status.dropped_bytes,
    )


async def _collect(
    process: GuestProcess, output_bytes: int
) -> tuple[dict[Channel, bytearray], int]:
    kept = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
    dropped = 0
    with contextlib.suppress(SandboxUnavailableError):
        while (part := await process.output()) is not None:
            room = output_bytes - len(kept[part.channel])
            kept[part.channel] += part.data[:room]
            dropped += max(0, len(part.data) - room)
    return kept, dropped


@contextlib.asynccontextmanager
async def feeding(process: GuestProcess, data: bytes) -> AsyncIterator[None]:
    """In the block the process gets `data` as its stdin, as fast as it takes it."""
    feeder = asyncio.ensure_future(_feed(process, data)) if data else None
    try:
        yield
    finally:
        if feeder:
            feeder.cancel()


async def _feed(process: GuestProcess, data: bytes) -> None:
    with contextlib.suppress(SandboxUnavailableError):
        await process.write(data)
        process.close_stdin()
