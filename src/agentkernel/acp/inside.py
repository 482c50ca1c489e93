"""The sandbox of a bridge's agent, by calls to the daemon: files and terminals for the agent.

A daemon that was away for a moment is asked again, where asking twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from agentkernel.agents.acp.services import MAX_OUTPUT, Exit, Output, is_terminal
from agentkernel.client._async.jobs import AsyncJob
from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client.results import CommandResult
from agentkernel.errors import AgentKernelError, DaemonError, NotFoundError

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
            await terminal.caught_up()
            self._terminals[id] = terminal
        return self._terminals[id]

    def close(self) -> None:
        """The jobs go on."""
        for terminal in self._terminals.values():
            terminal.close()


class _Terminal:
    """One job's output, the newest `keep` bytes, and its end. One is attached to it at a time."""

    def __init__(self, job: AsyncJob, keep: int) -> None:
        self.job = job
        self._keep = keep
        self._data = bytearray()
        self._offset = 0
        self._caught_up = asyncio.Event()
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._follow())

    @property
    def ended(self) -> bool:
        return self._exit.done()

    def output(self) -> Output:
        ended = self._exit.result() if self._exit.done() else None
        return Output(bytes(self._data), self._offset > len(self._data), ended)

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    async def caught_up(self) -> None:
        await self._caught_up.wait()

    def close(self) -> None:
        self._task.cancel()

    async def _follow(self) -> None:
        ended = Exit()
        try:
            await self._read(follow=False)
            self._caught_up.set()
            ended = await self._read(follow=True)
        except AgentKernelError:
            pass  # lost with the sandbox's processes
        finally:
            self._caught_up.set()
            if not self._exit.done():
                self._exit.set_result(ended)

    async def _read(self, *, follow: bool) -> Exit:
        async def read() -> Exit:
            stream = self.job.output(stdout_offset=self._offset, follow=follow)
            async with stream:
                async for chunk in stream:
                    if chunk.stream == "stdout":
                        self._take(chunk.data, chunk.offset)
            return _exit(stream.result) if follow else Exit()

        return await _again(read)

    def _take(self, data: bytes, offset: int) -> None:
        self._data += data
        self._offset = offset + len(data)
        if (over := len(self._data) - self._keep) > 0:
            del self._data[:over]


def _exit(result: CommandResult) -> Exit:
    return Exit(result.exit_code, result.signal)


async def _again(call: Callable[[], Awaitable[T]]) -> T:
    for pause in _AGAIN:
        try:
            return await call()
        except DaemonError:
            await asyncio.sleep(pause)
    return await call()
