"""The kernel as a library: sandboxes and the commands in them, without a server.

    async with Kernel() as kernel:
        sandbox = await kernel.create(SandboxSpec())
        result = await kernel.run(sandbox, ["python3", "-c", "print(6*7)"])

A Kernel owns the sandboxes it made and ends them when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from agentkernel.backends.base import Backend, Progress, Sandbox
from agentkernel.backends.native.backend import NativeBackend
from agentkernel.errors import InvalidInputError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus, GuestProcess, Outcome, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.state import state_directory

_SIGKILL = 9


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished command with what it wrote. `truncated`: more was written than was to be kept."""

    status: ExitStatus
    stdout: bytes
    stderr: bytes
    truncated: bool
    dropped_bytes: int


class Kernel:
    """See the module."""

    def __init__(self, state_dir: Path | None = None) -> None:
        self.state_dir = state_dir or state_directory()
        self.backend: Backend = NativeBackend(self.state_dir)
        self._sandboxes: dict[str, Sandbox] = {}

    async def __aenter__(self) -> Kernel:
        await self.backend.collect_garbage()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox in list(self._sandboxes.values()):
            await self.destroy(sandbox)

    async def create(self, spec: SandboxSpec, progress: Progress | None = None) -> Sandbox:
        sandbox = await self.backend.create(expand(spec), progress)
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    async def destroy(self, sandbox: Sandbox) -> None:
        await sandbox.destroy()
        self._sandboxes.pop(sandbox.id, None)

    def start(self, sandbox: Sandbox, argv: Sequence[str], options: ProcessOptions) -> GuestProcess:
        """Starts a command whose environment is the sandbox's with the caller's on top."""
        if not argv or any("\0" in word for word in argv):
            raise InvalidInputError("a command needs at least one word, and none with a NUL")
        for key in options.env:
            if not key or "=" in key or "\0" in key or "\0" in options.env[key]:
                raise InvalidInputError(f"{key!r} is not a name of an environment variable")
        if options.user is not None:
            sandbox.check_user(options.user)
        environment = {**sandbox.environment, **options.env}
        options = msgspec.structs.replace(options, env=environment)
        return GuestProcess.start(sandbox.channel, argv, options)

    def judge(self, sandbox: Sandbox, process: GuestProcess) -> ExitStatus:
        """The outcome as the host sees it: it knows why the kernel killed, agentd does not."""
        status = process.status
        if status is None:
            return ExitStatus(outcome=Outcome.LOST)
        if (
            status.outcome is Outcome.SIGNALED
            and status.signal == _SIGKILL
            and sandbox.was_out_of_memory()
        ):
            return msgspec.structs.replace(status, outcome=Outcome.OOM, signal=None)
        return status

    async def run(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        stdin: bytes = b"",
        output_bytes: int = 16 << 20,
    ) -> ExecResult:
        """Runs a command to its end and keeps at most `output_bytes` of each of its streams."""
        options = msgspec.structs.replace(options or ProcessOptions(), stdin=bool(stdin))
        process = self.start(sandbox, argv, options)
        kept = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
        dropped = 0
        feeder = None
        if stdin:
            feeder = asyncio.ensure_future(_feed(process, stdin))
        try:
            while (part := await process.output()) is not None:
                channel, data = part
                room = output_bytes - len(kept[channel])
                kept[channel] += data[:room]
                dropped += max(0, len(data) - room)
        except SandboxUnavailableError:
            pass  # the outcome says `lost`
        finally:
            if feeder:
                feeder.cancel()
            process.release()
        status = self.judge(sandbox, process)
        return ExecResult(
            status=status,
            stdout=bytes(kept[Channel.STDOUT]),
            stderr=bytes(kept[Channel.STDERR]),
            truncated=dropped > 0,
            dropped_bytes=dropped + status.dropped_bytes,
        )


async def _feed(process: GuestProcess, data: bytes) -> None:
    try:
        await process.write(data)
    except SandboxUnavailableError:
        return
    process.close_stdin()
