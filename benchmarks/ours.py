"""agentkernel as a contestant: in process, over the daemon's socket, and by its command line."""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path
from types import TracebackType

from machine import ROOT
from measure import Work, command

from agentkernel.backends.base import Sandbox
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

# So many are made at once where nothing else is said: enough for any machine to be busy.
AT_ONCE = 8


class Ours:
    """One engine of ours, with a state directory and a daemon of its own."""

    def __init__(self, backend: str, state_dir: Path) -> None:
        self.backend = backend
        self.state_dir = state_dir
        self.spec = SandboxSpec(backend=backend)
        self.runs = Runs(state_dir / "runs")
        self._daemon_dir = state_dir / "daemon"
        self.transport: AsyncTransport

    async def __aenter__(self) -> Ours:
        # As an installed one is: whoever starts this may have told Python to keep no bytecode.
        compileall.compile_dir(ROOT / "src", quiet=1)
        for path in (self.runs.state_dir, self._daemon_dir):
            path.mkdir(mode=0o700, parents=True)
        await self.runs.__aenter__()
        os.environ["AGENTKERNEL_STATE_DIR"] = str(self._daemon_dir)
        self.transport = AsyncTransport(str(self._daemon_dir))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.transport.close()
        await command(*self.cli(), "daemon", "stop")
        await self.runs.__aexit__(kind, error, trace)

    @property
    def socket(self) -> Path:
        return self._daemon_dir / "api.sock"

    def cli(self) -> list[str]:
        return [sys.executable, "-P", "-m", "agentkernel"]

    # -- create, run, destroy -------------------------------------------------------------------

    async def run_in_process(self) -> None:
        sandbox = await self.runs.create(self.spec)
        try:
            await self.exec_in_process(sandbox)
        finally:
            await self.runs.destroy(sandbox)

    async def run_over_socket(self) -> None:
        result = await AsyncSandbox.run(["true"], transport=self.transport, backend=self.backend)
        assert result.exit_code == 0, result

    def run_by_cli(self) -> Work:
        words = [*self.cli(), "run", "--workspace", "none", "--backend", self.backend]
        words += ["--", "true"]
        return lambda: command(*words)

    # -- exec -----------------------------------------------------------------------------------

    async def exec_in_process(self, sandbox: Sandbox) -> None:
        result = await self.runs.run(sandbox, ["true"])
        assert result.status.exit_code == 0, result

    async def remote(self) -> AsyncSandbox:
        return await AsyncSandbox.create(transport=self.transport, backend=self.backend)


async def exec_over_socket(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec(["true"])
    assert result.exit_code == 0, result
