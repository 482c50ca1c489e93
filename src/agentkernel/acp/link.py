"""The agent's stdin and stdout, whatever becomes of the daemon between.

The agent is a job: agentd keeps what it writes and counts what it has been given. So whoever is cut
off attaches again, reads on from where it was, and sends again what had not arrived: each byte
reaches the other end once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from agentkernel.agents.acp import wire
from agentkernel.client._async.commands import AsyncCommandStream
from agentkernel.client._async.jobs import AsyncJob
from agentkernel.client.results import CommandResult
from agentkernel.errors import AgentKernelError, ConflictError, DaemonError, SandboxUnavailableError

KEEP: Final = 2 << 20
"""Of what was sent, for sending it again: more than can be on its way."""
AHEAD: Final = 32 << 20
"""What may wait to be taken by an agent that does not read."""
PATIENCE_SECONDS: Final = 60.0
"""How long a daemon may be away."""
_START_SECONDS: Final = 20.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class LinkLostError(ConflictError):
    """What the agent was told and what it got are not known to be the same any more."""


class AgentLink:
    """One job's. `errors` is called with each piece of its stderr."""

    def __init__(
        self,
        job: AsyncJob,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        errors: Callable[[bytes], object] = lambda data: None,
    ) -> None:
        self.result: CommandResult | None = None
        self._job = job
        self._offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        self._errors = errors
        self._stream: AsyncCommandStream | None = None
        self._lines = wire.Lines()
        # Bytes of its stdin: [_first, _first + len(_kept)), of which those before _sent are on
        # their way.
        self._kept = bytearray()
        self._first: int | None = None
        self._sent = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._attached = asyncio.Event()

    async def open(self) -> None:
        """Attached. Raises what keeps it from that."""
        if self._stream is None:
            await self._attach(time.monotonic() + PATIENCE_SECONDS)

    async def send(self, message: wire.Message) -> None:
        """Returns when it is about to be sent."""
        while len(self._kept) > AHEAD:
            self._room.clear()
            await self._room.wait()
        self._kept += wire.encode(message)
        self._more.set()

    def end_line(self) -> None:
        """Whatever was written before us: what we send next begins a line."""
        self._kept += b"\n"
        self._more.set()

    async def messages(self) -> AsyncIterator[wire.Message | None]:
        """What the agent says, to its end, when `result` is there; None for each line that is
        nothing. Raises AgentKernelError if it can't be reached any more."""
        await self.open()
        writing = asyncio.ensure_future(self._write())
        try:
            while True:
                try:
                    assert self._stream is not None
                    async for chunk in self._stream:
                        for message in self._take(chunk.stream, chunk.data, chunk.offset):
                            yield message
                    self.result = self._stream.result
                    return
                except (DaemonError, SandboxUnavailableError):
                    await self._again()
        finally:
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing

    async def flush(self, seconds: float) -> None:
        """Waits until all is sent, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._first is not None and self._sent < self._first + len(self._kept):
                    self._room.clear()
                    await self._room.wait()

    async def close(self) -> None:
        """The job goes on."""
        if self._stream is not None:
            await self._stream.close()

    def _take(self, stream: str, data: bytes, offset: int) -> list[wire.Message | None]:
        if offset != self._offsets[stream] and stream == "stdout":
            # The job wrote more than is kept while nobody listened: an answer may be among that.
            raise LinkLostError(
                "the agent has said more than is kept, and the editor did not read it",
                hint="start the agent again from the editor",
            )
        self._offsets[stream] = offset + len(data)
        if stream == "stderr":
            self._errors(data)
            return []
        dropped = self._lines.dropped
        found: list[wire.Message | None] = [wire.decode(line) for line in self._lines.feed(data)]
        return found + [None] * (self._lines.dropped - dropped)

    async def _again(self) -> None:
        """After the connection was lost."""
        self._attached.clear()
        if self._stream is not None:
            await self._stream.close()
        await self._attach(time.monotonic() + PATIENCE_SECONDS)

    async def _attach(self, deadline: float) -> None:
        for pause in (*_PAUSES, *[_PAUSES[-1]] * 600):
            stream = self._job.output(
                stdout_offset=self._offsets["stdout"],
                stderr_offset=self._offsets["stderr"],
                whole=True,
            )
            try:
                await stream.open()
                await stream.started(seconds=_START_SECONDS)
                break
            except (DaemonError, SandboxUnavailableError) as error:
                await stream.close()
                if time.monotonic() > deadline:
                    raise error
                await asyncio.sleep(pause)
            except AgentKernelError:
                await stream.close()
                raise
        self._stream = stream
        self._resume(stream.stdin_offset)
        self._attached.set()

    def _resume(self, arrived: int | None) -> None:
        """What has arrived is not sent again, and what has not is."""
        if arrived is None:
            return  # it has ended
        if self._first is None:
            self._first = self._sent = arrived
        if not self._first <= arrived <= self._sent:
            raise LinkLostError(
                "another program has written to the agent meanwhile",
                hint="start the agent again from the editor",
            )
        self._sent = arrived
        self._more.set()

    async def _write(self) -> None:
        while True:
            await self._attached.wait()
            assert self._first is not None and self._stream is not None
            waiting = bytes(self._kept[self._sent - self._first :][: 1 << 16])
            if not waiting:
                self._more.clear()
                self._room.set()
                await self._more.wait()
                continue
            stream = self._stream
            self._sent += len(waiting)
            try:
                await stream.write(waiting)
            except (DaemonError, SandboxUnavailableError):
                # Whoever reads attaches again, or has, and knows then what has arrived.
                if stream is self._stream:
                    self._attached.clear()
                continue
            over = self._sent - self._first - KEEP
            if over > 0:
                del self._kept[:over]
                self._first += over
            if len(self._kept) <= AHEAD:
                self._room.set()
