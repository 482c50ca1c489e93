"""Who listens to a running session: its job's output becomes events and a recording.

One recorder for each session that runs, from its start or from where the last daemon was. It ends
with the job, or with its sandbox. What a guest writes is data here: lines that are too long are
cut, what is no text is marked, nothing is obeyed.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import json

from agentkernel.agents.commands import Mode
from agentkernel.agents.definition import EventFormat
from agentkernel.agents.events import MAX_LINE, AcpReader, EventReader
from agentkernel.agents.model import AgentUsage
from agentkernel.errors import AgentKernelError, SandboxUnavailableError
from agentkernel.guest.processes import AttachedProcess, Chunk
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.agents.driver import Driver
from agentkernel.kernel.agents.files import SessionFiles, SessionWriter
from agentkernel.kernel.agents.model import AgentEvent, EventKind
from agentkernel.kernel.jobs import Jobs
from agentkernel.kernel.shared_jobs import Listener

_KEEP_SECONDS: Final = 0.25
_MAX_ID: Final = 512
_SHOWN_OF_LONG: Final = 4096
# Lines of one session, before it is another's turn.
_AT_ONCE: Final = 100
# Of what is no event: as JSON it may be six times as long.
_MAX_TEXT: Final = 1 << 18
_OUTPUTS: Final = (Channel.STDOUT, Channel.STDERR)


class Reader(Protocol):
    """What EventReader and AcpReader have in common."""

    conversation: str | None
    commands: list[str]
    usage: AgentUsage
    complete: bool


class Recorder:
    """See the module. `changed` is called when the agent has named its conversation or its usage.
    Set `driver` before `run`."""

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        files: SessionFiles,
        *,
        mode: Mode,
        format: EventFormat,
        size: tuple[int, int] | None,
        title: str,
        changed: Callable[[], None],
    ) -> None:
        self.news = asyncio.Event()
        self.attached = asyncio.Event()
        self.driver: Driver | None = None
        # The session's end is in its log.
        self.over = False
        self.reader: Reader = AcpReader() if mode == "acp" else EventReader(format)
        self._jobs = jobs
        self._job = job
        self._mode = mode
        self._process: AttachedProcess | None = None
        self._writer = SessionWriter(files, size=size, title=title)
        self._changed = changed
        # The beginning of a line of each, and where in the output it begins: all before is done.
        self._held = {channel: bytearray() for channel in _OUTPUTS}
        began = self._writer.position
        self._at = {Channel.STDOUT: began.out, Channel.STDERR: began.err}
        self._skipping: set[Channel] = set()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept_at = 0.0
        self._keeping: asyncio.TimerHandle | None = None
        if self._writer.seq:
            self._read_again(files)

    # -- the job --------------------------------------------------------------------------------

    async def run(self) -> None:
        """To the job's end, or to its sandbox's: SandboxUnavailableError, ConflictError."""
        began = self._writer.position
        try:
            async with self._jobs.attach(
                self._job, stdout_offset=began.out, stderr_offset=began.err, shared=True, whole=True
            ) as process:
                self._process = process
                if isinstance(process, Listener):
                    process.on_resize = self._resized
                self.attached.set()
                while (chunk := await process.output()) is not None:
                    await self._take(chunk)
                    self._keep_soon()
                self._flush()
        finally:
            if self.driver is not None:
                self.driver.lost()
            self._keep()

    def close(self) -> None:
        """Nothing is written any more."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        self._writer.close()
        self._wake()

    # -- what sessions and drivers say -----------------------------------------------------------

    def tell(self, kind: EventKind, body: dict[str, Any]) -> AgentEvent | None:
        """An event that no output can tell again: it is there when this returns."""
        event = self._tell(kind, body)
        if event is not None and self._mode == "acp":
            before = self.reader.usage
            read_event(self.reader, event)
            if self.reader.usage != before:
                self._changed()
        if kind == "agent":
            self._keep_soon()
        else:
            self._keep()
        return event

    @property
    def seq(self) -> int:
        """Of the newest event."""
        return self._writer.seq

    async def send(self, line: bytes) -> None:
        if self._process is None:
            raise SandboxUnavailableError("the agent does not run any more")
        await self._process.write(line + b"\n")

    def found(self, conversation: str) -> None:
        if 0 < len(conversation) <= _MAX_ID and conversation.isprintable():
            self.reader.conversation = conversation
            self._changed()

    def used(self, usage: AgentUsage) -> None:
        self.reader.usage = usage
        self._changed()

    # -- output ---------------------------------------------------------------------------------

    async def _take(self, chunk: Chunk) -> None:
        held = self._held[chunk.channel]
        if self._mode == "interactive":
            self._writer.show("o", self._decoder.decode(chunk.data))
            waiting = len(self._decoder.getstate()[0])
            self._at[chunk.channel] = chunk.offset + len(chunk.data) - waiting
            return
        if chunk.offset != self._at[chunk.channel] + len(held):
            # Something between is not kept any more, and with it the line that had begun.
            held.clear()
            self._at[chunk.channel] = chunk.offset
            self.reader.complete = False
        *lines, rest = chunk.data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)  # one that floods lines is not the only one here
            held += line
            whole = bytes(held)
            held.clear()
            self._at[chunk.channel] += len(whole) + 1
            self._end_line(chunk.channel, whole)
        held += rest
        if len(held) > MAX_LINE:
            self._at[chunk.channel] += len(held)
            self._cut(chunk.channel, bytes(held))
            held.clear()

    def _end_line(self, channel: Channel, line: bytes) -> None:
        if channel in self._skipping:
            self._skipping.discard(channel)
        elif len(line) > MAX_LINE:
            self._cut(channel, line)
            self._skipping.discard(channel)
        else:
            self._line(channel, line)

    def _cut(self, channel: Channel, line: bytes) -> None:
        if channel not in self._skipping:
            text = line[:_SHOWN_OF_LONG].decode("utf-8", "replace")
            self._tell("output", {"text": text, "stream": _NAMES[channel], "cut": True})
            self.reader.complete = False
        self._skipping.add(channel)

    def _line(self, channel: Channel, line: bytes) -> None:
        if channel is Channel.STDOUT and self._mode == "acp":
            if self.driver is not None:
                self.driver.feed(line)
            return
        event = None
        if channel is Channel.STDOUT and isinstance(self.reader, EventReader):
            before = (self.reader.conversation, self.reader.usage)
            event = self.reader.feed(line)
            if before != (self.reader.conversation, self.reader.usage):
                self._changed()
        if event is not None:
            self._tell("agent", event)
            return
        if len(line) > _MAX_TEXT:
            self._cut(channel, line)
            self._skipping.discard(channel)
            return
        text = line.decode("utf-8", "replace").removesuffix("\r")
        self._tell("output", {"text": text, "stream": _NAMES[channel]})
        self._writer.show("o", f"{text}\r\n")

    def _flush(self) -> None:
        """At the end: a last line without its end is one, too."""
        for channel, held in self._held.items():
            last = bytes(held)
            held.clear()
            self._at[channel] += len(last)
            if last and channel not in self._skipping:
                self._line(channel, last)
        if self._mode == "interactive":
            self._writer.show("o", self._decoder.decode(b"", final=True))

    def _resized(self, rows: int, columns: int) -> None:
        self._writer.show("r", f"{columns}x{rows}")
        self.tell("resize", {"rows": rows, "columns": columns})

    def _tell(self, kind: EventKind, body: dict[str, Any]) -> AgentEvent | None:
        event = self._writer.tell(kind, body)
        self._wake()
        return event

    def _wake(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    # -- the position ---------------------------------------------------------------------------

    def _keep_soon(self) -> None:
        if time.monotonic() - self._kept_at >= _KEEP_SECONDS:
            self._keep()
        elif self._keeping is None:
            loop = asyncio.get_running_loop()
            self._keeping = loop.call_later(_KEEP_SECONDS, self._keep)

    def _keep(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        self._kept_at = time.monotonic()
        self._writer.keep(self._at[Channel.STDOUT], self._at[Channel.STDERR])

    def _read_again(self, files: SessionFiles) -> None:
        """What is known of the session from what it has said before."""
        for event, _ in files.read():
            read_event(self.reader, event)
            self.over = event.kind == "ended"


def read_event(reader: Reader, event: AgentEvent) -> None:
    """The reader as if it had seen the event first."""
    if event.body.get("cut") or (event.kind == "session" and "note" in event.body):
        reader.complete = False
    if isinstance(reader, AcpReader):
        if event.kind == "agent":
            reader.update(event.body)
        elif event.kind == "prompt" and isinstance(result := event.body.get("result"), dict):
            reader.ended(result)
    elif isinstance(reader, EventReader) and event.kind in ("agent", "output"):
        if event.kind == "agent":
            reader.feed(json.encode(event.body))
        elif event.body.get("stream") == "stdout":
            reader.feed(str(event.body.get("text", "")).encode())


async def recorded(recorder: Recorder) -> AgentKernelError | None:
    """Runs it; why it lost its agent, if it did."""
    try:
        await recorder.run()
    except AgentKernelError as exc:
        return exc
    return None


_NAMES: Final = {Channel.STDOUT: "stdout", Channel.STDERR: "stderr"}
