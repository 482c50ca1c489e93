"""The sandbox of a bridge's agent, by calls to the daemon: files and terminals for the agent.

A daemon that was away for a moment is asked again, where asking twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from agentkernel.agents.acp.followed import FollowedTerminal
from agentkernel.agents.acp.services import MAX_OUTPUT, Exit, Output, is_terminal
from agentkernel.client._async.jobs import AsyncJob
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client.results import CommandResult
from agentkernel.errors import DaemonError, NotFoundError

_AGAIN: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
T = TypeVar("T")


class SandboxInside:
    """See `agents.acp.services.Inside`. `user`: whose rights the agent has; None: the sandbox's
    own user's."""

    def __init__(self, sandbox: AsyncSandbox, user: str | None = None) -> None:
        self._sandbox = sandbox
        self._user = user
        self._terminals: dict[str, _Terminal] = {}

    async def read(self, path: str, most: int) -> bytes:
        return await _again(
            lambda: self._sandbox.files.read_bytes(path, length=most, user=self._user)
        )

    async def write(self, path: str, data: bytes) -> None:
        await _again(lambda: self._sandbox.files.write(path, data, parents=True, user=self._user))

    async def start(
        self, argv: list[str], *, env: dict[str, str], cwd: str | None, keep: int
    ) -> str:
        job = await self._sandbox.jobs.start(
            argv, env=env, cwd=cwd, user=self._user, output_bytes=keep
        )
        self._terminals[job.id] = _Terminal(job, keep)
        return job.id

    async def output(self, id: str) -> Output:
        return (await self._terminal(id)).output()

    async def wait(self, id: str) -> Exit:
        return await (await self._terminal(id)).wait()

    async def kill(self, id: str) -> None:
        terminal = await self._terminal(id)
        if not terminal.ended:
            await _again(terminal.job.kill)

    async def release(self, id: str) -> None:
        await self.kill(id)
        if terminal := self._terminals.pop(id, None):
            terminal.close()

    async def _terminal(self, id: str) -> _Terminal:
        """An agent names what it likes: only jobs of its own sandbox are its terminals. One that
        is not known is of a bridge that is gone."""
        if id not in self._terminals:
            job = await _again(lambda: self._sandbox.jobs.get(id))
            if job.info.sandbox_id != self._sandbox.id or not is_terminal(job.info.argv):
                raise NotFoundError("there is no such terminal")
            terminal = _Terminal(job, MAX_OUTPUT)
            await terminal.is_caught_up.wait()
            self._terminals[id] = terminal
        return self._terminals[id]

    def close(self) -> None:
        """The jobs go on."""
        for terminal in self._terminals.values():
            terminal.close()


class _Terminal(FollowedTerminal):
    """One is attached to it at a time."""

    def __init__(self, job: AsyncJob, keep: int) -> None:
        self.job = job
        super().__init__(keep)

    async def follow(self) -> Exit:
        await self._read(follow=False)
        self.is_caught_up.set()
        return await self._read(follow=True)

    async def _read(self, *, follow: bool) -> Exit:
        async def read() -> Exit:
            stream = self.job.output(stdout_offset=self.offset, follow=follow)
            async with stream:
                async for chunk in stream:
                    if chunk.stream == "stdout":
                        self.take(chunk.data, chunk.offset)
            return _exit(stream.result) if follow else Exit()

        return await _again(read)


def _exit(result: CommandResult) -> Exit:
    return Exit(result.exit_code, result.signal)


async def _again(call: Callable[[], Awaitable[T]]) -> T:
    for pause in _AGAIN:
        try:
            return await call()
        except DaemonError:
            await asyncio.sleep(pause)
    return await call()
