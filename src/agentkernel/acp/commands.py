"""An agent that is a command line and no more, in a sandbox that is found by what it is for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentkernel.acp.attaching import attach
from agentkernel.acp.holding import Hold, hold
from agentkernel.acp.opening import Opened
from agentkernel.acp.stdio import log
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.errors import ConflictError

LABEL: Final = "agentkernel.acp"
IDLE_SECONDS: Final = 1800.0


class CommandOpener:
    """`spec`: fields of SandboxSpec, with the workspace. `guest`: where that is inside."""

    def __init__(
        self,
        transport: AsyncTransport,
        agent: str,
        command: Sequence[str],
        *,
        project: str,
        guest: str,
        spec: Mapping[str, Any],
        env: Mapping[str, str],
        sandbox: str | None = None,
    ) -> None:
        self.agent = agent
        self._transport = transport
        self._command = list(command)
        self._project = project
        self._guest = guest
        self._spec = spec
        self._env = dict(env)
        self._sandbox = sandbox
        self._hold: Hold | None = None

    async def open(self) -> Opened:
        sandbox = await self._found() or await self._made()
        if sandbox.info.state == "stopped":
            await sandbox.start()
        for job in await sandbox.jobs.list():
            if job.info.state == "running" and job.info.argv == self._command:
                log(f"{self.agent} is still there in {sandbox.name}")
                return await attach(sandbox, job, self._project, self._guest, again=True)
        job = await sandbox.jobs.start(self._command, env=self._env, cwd=self._guest, stdin=True)
        return await attach(sandbox, job, self._project, self._guest, again=False)

    async def leave(self) -> None:
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    async def _found(self) -> AsyncSandbox | None:
        if self._sandbox is not None:
            sandbox = await AsyncSandbox.connect(self._sandbox, transport=self._transport)
            if not self._take(sandbox):
                raise ConflictError("another editor speaks to the agent in this sandbox")
            return sandbox
        labels = {LABEL: self._digest()}
        # The oldest is the one that every editor had that came alone.
        for sandbox in await AsyncSandbox.list(labels=labels, transport=self._transport):
            if sandbox.info.state in ("running", "stopped") and self._take(sandbox):
                return sandbox
        return None

    async def _made(self) -> AsyncSandbox:
        sandbox = await AsyncSandbox.create(
            kept=True,
            labels={LABEL: self._digest()},
            idle_seconds=IDLE_SECONDS,
            on_idle="stop",
            progress=log,
            transport=self._transport,
            **self._spec,
        )
        self._take(sandbox)
        return sandbox

    def _take(self, sandbox: AsyncSandbox) -> bool:
        self._hold = hold(sandbox.id)
        return self._hold is not None

    def _digest(self) -> str:
        words = [self.agent, os.path.realpath(self._project), self._guest, *self._command]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]
