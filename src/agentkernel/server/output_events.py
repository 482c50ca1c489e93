"""A process's output as events: text where it is text, and no character cut in two."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agentkernel.errors import SandboxUnavailableError
from agentkernel.guest.processes import AttachedProcess, Chunk, ExitStatus
from agentkernel.guest.protocol import Channel
from agentkernel.server.answers import CommandStatus, Ended, Problem, status_fields
from agentkernel.server.sse import event

_NAMES: Final = {Channel.STDOUT: "stdout", Channel.STDERR: "stderr"}
_OUTPUTS: Final = tuple(_NAMES)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The command runs."""

    pid: int


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What it wrote: `text`, or `data_b64` where that is not UTF-8. `offset` is the number of bytes
    of this stream before it; what was lost between two shows there."""

    offset: Annotated[int, Meta(ge=0)]
    text: str | UnsetType = UNSET
    data_b64: str | UnsetType = UNSET


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know before the command starts."""

    text: str


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """All that was there is delivered, and the job goes on."""

    stdout_offset: int
    stderr_offset: int


class PublishedAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a port of the sandbox is on the daemon's machine."""

    port: int
    address: str
    host_port: int


# What the streams can hold, by event.
COMMAND_EVENTS: Final[Mapping[str, Any]] = {
    "start": Begun,
    "stdout": Output,
    "stderr": Output,
    "exit": CommandStatus,
    "error": Problem,
    "ping": Ended,
}
RUN_EVENTS: Final[Mapping[str, Any]] = {
    "progress": Words,
    "notice": Words,
    "published": PublishedAt,
    **COMMAND_EVENTS,
}


class Writer:
    """Chunks to events. Of each stream it holds back at most the beginning of one character.

    `room`: how many bytes of each are delivered; what is beyond is counted in `dropped`. With
    `ids` each event says how far both streams are delivered, for `Last-Event-ID`.
    """

    def __init__(
        self, *, room: int | None = None, ids: Mapping[Channel, int] | None = None
    ) -> None:
        self.dropped = 0
        self._room = None if room is None else dict.fromkeys(_OUTPUTS, room)
        self._held: dict[Channel, Chunk | None] = dict.fromkeys(_OUTPUTS)
        self._delivered = None if ids is None else dict(ids)

    def feed(self, chunk: Chunk) -> Iterator[bytes]:
        channel, data, offset = chunk.channel, chunk.data, chunk.offset
        if self._room is not None:
            data = data[: self._room[channel]]
            self._room[channel] -= len(data)
            self.dropped += len(chunk.data) - len(data)
        if (held := self._held[channel]) is not None:
            if held.offset + len(held.data) == offset:
                data, offset = held.data + data, held.offset
            else:  # something was lost in between
                yield self._event(held)
            self._held[channel] = None
        size = len(data) - _unfinished(data)
        if size < len(data):
            self._held[channel] = Chunk(channel, data[size:], offset + size)
        if size:
            yield self._event(Chunk(channel, data[:size], offset))

    def rest(self) -> Iterator[bytes]:
        """Half a character at the very end is bytes."""
        for channel in _OUTPUTS:
            if (held := self._held[channel]) is not None:
                self._held[channel] = None
                yield self._event(held)

    def exit(self, status: ExitStatus) -> bytes:
        dropped = status.dropped_bytes + self.dropped
        fields = status_fields(status) | {"dropped_bytes": dropped}
        return event("exit", CommandStatus(**fields, truncated=dropped > 0))

    def _event(self, chunk: Chunk) -> bytes:
        id = None
        if self._delivered is not None:
            self._delivered[chunk.channel] = chunk.offset + len(chunk.data)
            id = "-".join(str(self._delivered[channel]) for channel in _OUTPUTS)
        try:
            body = Output(offset=chunk.offset, text=chunk.data.decode())
        except UnicodeDecodeError:
            encoded = base64.b64encode(chunk.data).decode("ascii")
            body = Output(offset=chunk.offset, data_b64=encoded)
        return event(_NAMES[chunk.channel], body, id)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 that more bytes could complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        begins = byte >= 0xC2 and byte < 0xF5
        return back if begins and length > back else 0
    return 0


async def outputs(
    process: AttachedProcess, writer: Writer, *, until: Mapping[Channel, int] | None = None
) -> AsyncGenerator[bytes, None]:
    """From `start` to the last output; then `status` of the process is there, or it was lost, or
    all up to `until` is delivered."""
    with contextlib.suppress(SandboxUnavailableError):
        await process.started()
        if process.pid is not None:
            yield event("start", Begun(pid=process.pid))
        while until is None or any(process.offsets[one] < until[one] for one in until):
            chunk = await process.output()
            if chunk is None:
                break
            for told in writer.feed(chunk):
                yield told
    for told in writer.rest():
        yield told
