"""One attachment to a job for all who listen to it: agentd has room for one.

What must hold: nobody waits for anybody, but for one who has asked to miss nothing (`whole`: a
protocol's other end): then the job's output waits in agentd, which keeps more of it. What the job
writes is kept for a while (`KEEP` bytes of memory at most), each listener reads on from where it
was, and one that falls further behind than that misses what is between, which the offsets of what
follows tell. A listener that comes begins as far back as is kept. What they write goes to the job
piece by piece, in the order it came; the terminal has the size that was said last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from agentkernel.backends.base import Sandbox
from agentkernel.errors import AgentKernelError, SandboxUnavailableError
from agentkernel.guest.processes import Chunk, ExitStatus, GuestProcess, count
from agentkernel.guest.protocol import Channel

KEEP: Final = 2 << 20
# What a piece takes besides its bytes: a guest may write them one by one.
_COST: Final = 256
# A program that asks for its size when it is told of a change must see both.
_REDRAW_SECONDS: Final = 0.1
_OUTPUTS: Final = (Channel.STDOUT, Channel.STDERR)

Resized = Callable[[int, int], None]


class SharedJobs:
    """Those jobs that somebody listens to together with others."""

    def __init__(self) -> None:
        self._jobs: dict[str, SharedJob] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._jobs

    async def join(
        self, sandbox: Sandbox, id: str, offsets: Mapping[Channel, int], *, whole: bool = False
    ) -> Listener:
        """Preconditions: the caller releases it, in whatever way it ends."""
        job = self._jobs.get(id)
        if job is None:
            written = await _written(sandbox, id)
            job = self._jobs.get(id)  # somebody may have been faster
            if job is None:
                job = self._jobs[id] = SharedJob(sandbox, id, written, offsets, self._forget)
        return job.listen(offsets, whole=whole)

    def size_of(self, id: str) -> tuple[int, int] | None:
        job = self._jobs.get(id)
        return None if job is None else job.size

    def _forget(self, job: SharedJob) -> None:
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]


class SharedJob:
    """See the module. It lets go of the job with the last listener."""

    def __init__(
        self,
        sandbox: Sandbox,
        id: str,
        written: Mapping[Channel, int],
        wanted: Mapping[Channel, int],
        forget: Callable[[SharedJob], None],
    ) -> None:
        self.id = id
        self.size: tuple[int, int] | None = None
        self.failure: AgentKernelError | None = None
        self.over = False
        self.started = asyncio.Event()
        self.first = 0
        # Of its input, by all listeners.
        self.given = 0
        self.moved = asyncio.Event()
        self.pieces: deque[Chunk] = deque()
        # Half of what is kept is for those who come later and want to see what was before.
        begin = {one: max(0, min(wanted[one], written[one] - KEEP // 2)) for one in _OUTPUTS}
        self.ends = {one: max(begin[one], written[one]) for one in _OUTPUTS}
        self.writing = asyncio.Lock()
        self.process = GuestProcess.attach(
            sandbox.channel,
            id,
            stdout_offset=begin[Channel.STDOUT],
            stderr_offset=begin[Channel.STDERR],
        )
        self._held = 0
        self._forget = forget
        self._listeners: set[Listener] = set()
        self._reading = asyncio.ensure_future(self._read())
        self._redrawing: asyncio.Task[None] | None = None

    def listen(self, offsets: Mapping[Channel, int], *, whole: bool = False) -> Listener:
        begin = {one: min(offsets[one], self.ends[one]) for one in _OUTPUTS}
        listener = Listener(self, begin, whole=whole)
        listener.unread = self._held
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self.moved.set()
        if not self._listeners:
            self._forget(self)
            self._reading.cancel()
            if self._redrawing is not None:
                self._redrawing.cancel()
            self.process.release()

    async def _read(self) -> None:
        try:
            await self.process.started()
            self.started.set()
            while (chunk := await self.process.output()) is not None:
                self._keep(chunk)
                self._wake()
                while any(one.whole and one.unread > KEEP // 2 for one in self._listeners):
                    self.moved.clear()
                    await self.moved.wait()
        except AgentKernelError as exc:
            self.failure = exc
        finally:
            # Whoever comes now asks agentd anew.
            self._forget(self)
            self.over = True
            self.started.set()
            self._wake()

    def _keep(self, chunk: Chunk) -> None:
        self.pieces.append(chunk)
        self.ends[chunk.channel] = chunk.offset + len(chunk.data)
        self._held += len(chunk.data) + _COST
        for listener in self._listeners:
            listener.unread += len(chunk.data) + _COST
        while self._held > KEEP:
            gone = self.pieces.popleft()
            self.first += 1
            self._held -= len(gone.data) + _COST

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.news.set()

    def resize(self, rows: int, columns: int) -> None:
        self.size = (rows, columns)
        self.process.resize(rows, columns)
        for listener in self._listeners:
            if listener.on_resize is not None:
                listener.on_resize(rows, columns)

    def redraw(self, rows: int, columns: int) -> None:
        """Sizes the terminal and has its program draw all of it, also if it had that size."""
        if self._redrawing is not None:
            self._redrawing.cancel()
        self._redrawing = asyncio.ensure_future(self._redraw(rows, columns))

    async def _redraw(self, rows: int, columns: int) -> None:
        with contextlib.suppress(AgentKernelError):
            self.process.resize(rows - 1 if rows > 1 else 2, columns)
            await asyncio.sleep(_REDRAW_SECONDS)
            self.resize(rows, columns)


class Listener:
    """As a GuestProcess that was attached to, and one of several."""

    def __init__(self, job: SharedJob, offsets: Mapping[Channel, int], *, whole: bool) -> None:
        self.id = job.id
        self.whole = whole
        # What it has not taken yet of what is kept, or more: what is gone counts, too.
        self.unread = 0
        self.news = asyncio.Event()
        self.on_resize: Resized | None = None
        self._job = job
        self._next = job.first
        self._offsets = dict(offsets)

    @property
    def pid(self) -> int | None:
        return self._job.process.pid

    @property
    def status(self) -> ExitStatus | None:
        """Only when all was read that came before it."""
        job = self._job
        behind = self._next < job.first + len(job.pieces)
        return None if behind else job.process.status

    @property
    def output_bytes(self) -> int:
        return sum(self._offsets.values())

    @property
    def input_bytes(self) -> int | None:
        """By all of them: who writes alone knows by it what has arrived."""
        before = self._job.process.input_bytes
        return None if before is None else before + self._job.given

    @property
    def offsets(self) -> Mapping[Channel, int]:
        return self._offsets

    async def started(self) -> None:
        await self._job.started.wait()
        if self._job.failure is not None and not isinstance(
            self._job.failure, SandboxUnavailableError
        ):
            raise self._job.failure

    async def output(self) -> Chunk | None:
        """As GuestProcess's."""
        job = self._job
        while True:
            self.news.clear()
            self._next = max(self._next, job.first)
            while self._next < job.first + len(job.pieces):
                chunk = job.pieces[self._next - job.first]
                self._next += 1
                self.unread -= len(chunk.data) + _COST
                job.moved.set()
                done = self._offsets[chunk.channel] - chunk.offset
                if done >= len(chunk.data):
                    continue
                if done > 0:
                    chunk = Chunk(chunk.channel, chunk.data[done:], chunk.offset + done)
                self._offsets[chunk.channel] = chunk.offset + len(chunk.data)
                return chunk
            if job.failure is not None:
                raise job.failure
            if job.over:
                return None
            await self.news.wait()

    async def write(self, data: bytes) -> None:
        async with self._job.writing:
            self._job.given += len(data)
            await self._job.process.write(data)

    def close_stdin(self) -> None:
        self._job.process.close_stdin()

    def signal(self, number: int) -> None:
        self._job.process.signal(number)

    def kill(self) -> None:
        self._job.process.kill()

    def resize(self, rows: int, columns: int) -> None:
        self._job.resize(rows, columns)

    def redraw(self, rows: int, columns: int) -> None:
        self._job.redraw(rows, columns)

    def release(self) -> None:
        """Idempotent."""
        self._job.leave(self)


async def _written(sandbox: Sandbox, id: str) -> dict[Channel, int]:
    answer = await sandbox.channel.call("list")
    for entry in answer.get("procs", ()):
        if isinstance(entry, dict) and entry.get("id") == id:
            return {Channel.STDOUT: count(entry, "out"), Channel.STDERR: count(entry, "err")}
    return dict.fromkeys(_OUTPUTS, 0)
