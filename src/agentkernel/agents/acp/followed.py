"""A terminal that an agent asked its client for: a job inside, which is followed to its end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from agentkernel.agents.acp.services import Exit, Output
from agentkernel.errors import AgentKernelError


class FollowedTerminal(ABC):
    """One job's output, the newest `keep` bytes, and its end. How it is read is another's to say:
    in `follow`."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._data = bytearray()
        self.offset = 0
        self.is_caught_up = asyncio.Event()
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run())

    @abstractmethod
    async def follow(self) -> Exit:
        """Gives all that it writes to `take`, and sets `is_caught_up` when what it had written
        before is here."""

    @property
    def ended(self) -> bool:
        return self._exit.done()

    def output(self) -> Output:
        ended = self._exit.result() if self._exit.done() else None
        return Output(bytes(self._data), self.offset > len(self._data), ended)

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    def close(self) -> None:
        """The job goes on."""
        self._task.cancel()

    def take(self, data: bytes, offset: int) -> None:
        self._data += data
        self.offset = offset + len(data)
        if (over := len(self._data) - self._keep) > 0:
            del self._data[:over]

    async def _run(self) -> None:
        ended = Exit()
        try:
            ended = await self.follow()
        except AgentKernelError:
            pass  # lost with the sandbox's processes
        finally:
            self.is_caught_up.set()
            if not self._exit.done():
                self._exit.set_result(ended)
