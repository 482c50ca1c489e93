"""A session's sandbox for the agent's calls of files and terminals: see `agents.acp.services`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkernel.agents.acp.followed import FollowedTerminal
from agentkernel.agents.acp.services import MAX_OUTPUT, Exit, Output, is_terminal
from agentkernel.errors import NotFoundError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.guest.protocol import Channel

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel


class KernelInside:
    """See `Inside`. `user`: whose rights the agent has; None: the sandbox's own user's."""

    def __init__(self, kernel: Kernel, sandbox: str, user: str | None = None) -> None:
        self._kernel = kernel
        self._sandbox = sandbox
        self._user = user
        self._terminals: dict[str, _Terminal] = {}

    async def read(self, path: str, most: int) -> bytes:
        async with self._kernel.files(self._sandbox, user=self._user) as files:
            return b"".join([piece async for piece in files.read_stream(path, length=most)])

    async def write(self, path: str, data: bytes) -> None:
        async with self._kernel.files(self._sandbox, user=self._user) as files:
            await files.write(path, data, parents=True)

    async def start(
        self, argv: list[str], *, env: dict[str, str], cwd: str | None, keep: int
    ) -> str:
        options = ProcessOptions(env=env, cwd=cwd, user=self._user, output_bytes=keep)
        job = await self._kernel.jobs.start(self._sandbox, argv, options)
        self._terminals[job.id] = _Terminal(self._kernel, job.id, keep)
        return job.id

    async def output(self, id: str) -> Output:
        return (await self._terminal(id)).output()

    async def wait(self, id: str) -> Exit:
        return await (await self._terminal(id)).wait()

    async def kill(self, id: str) -> None:
        terminal = await self._terminal(id)
        if not terminal.ended:
            await self._kernel.jobs.kill(id)

    async def release(self, id: str) -> None:
        await self.kill(id)
        if terminal := self._terminals.pop(id, None):
            terminal.close()

    def close(self) -> None:
        """The jobs go on."""
        for terminal in self._terminals.values():
            terminal.close()

    async def _terminal(self, id: str) -> _Terminal:
        """An agent names what it likes: only jobs of its own sandbox are its terminals. One that
        is not known is of a daemon that is gone."""
        if id not in self._terminals:
            job = await self._kernel.jobs.get(id)
            if job.sandbox_id != self._sandbox or not is_terminal(job.argv):
                raise NotFoundError("there is no such terminal")
            terminal = self._terminals[id] = _Terminal(self._kernel, id, MAX_OUTPUT)
            await terminal.is_caught_up.wait()
        return self._terminals[id]


class _Terminal(FollowedTerminal):
    def __init__(self, kernel: Kernel, id: str, keep: int) -> None:
        self._kernel = kernel
        self._id = id
        super().__init__(keep)

    async def follow(self) -> Exit:
        written = await self._kernel.jobs.written(self._id)
        most = 0 if written is None else written[Channel.STDOUT]
        if self.offset >= most and written is not None:
            self.is_caught_up.set()
        async with self._kernel.jobs.attach(self._id, shared=True) as process:
            while (chunk := await process.output()) is not None:
                if chunk.channel is Channel.STDOUT:
                    self.take(chunk.data, chunk.offset)
                if written is not None and self.offset >= most:
                    self.is_caught_up.set()
            if process.status is not None:
                return Exit(process.status.exit_code, process.status.signal)
        return Exit()
