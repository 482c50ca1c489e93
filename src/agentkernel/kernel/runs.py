"""Sandboxes that live as long as the process that made them: no state, no daemon, no lock.

    async with Runs() as runs:
        sandbox = await runs.create(SandboxSpec())
        result = await runs.run(sandbox, ["python3", "-c", "print(6*7)"])

Many processes may do this side by side. What a killed one leaves is removed by the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from agentkernel.backends.base import Progress, Sandbox
from agentkernel.backends.registry import Backends
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult, run_command
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.state import state_directory


class Runs:
    """See the module."""

    def __init__(self, state_dir: Path | None = None) -> None:
        self.state_dir = state_dir or state_directory()
        self.backends = Backends(self.state_dir)
        self._sandboxes: dict[str, Sandbox] = {}

    async def __aenter__(self) -> Runs:
        await self.backends.collect_garbage()
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
        backend = self.backends[spec.backend]
        sandbox = await backend.create(expand(spec, owned=True), progress)
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    async def destroy(self, sandbox: Sandbox) -> None:
        await sandbox.destroy()
        self._sandboxes.pop(sandbox.id, None)

    async def run(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        stdin: bytes = b"",
        output_bytes: int | None = None,
    ) -> ExecResult:
        """A command to its end, with what it wrote; see `run_command`."""
        return await run_command(sandbox, argv, options, stdin=stdin, output_bytes=output_bytes)
