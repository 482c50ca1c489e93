"""A command whose output is read while it runs."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from agentkernel.client import frames, wire
from agentkernel.client._async.transport import CALL_SECONDS, AsyncTransport
from agentkernel.client._async.websocket import AsyncWebSocket
from agentkernel.client.results import Chunk, CommandResult
from agentkernel.errors import DaemonError, InvalidInputError

STDIN, STDOUT, STDERR, CONTROL = 0, 1, 2, 3
_STDIN_CHUNK = 1 << 16
Command = str | Sequence[str]


def command_body(command: Command, options: Mapping[str, Any]) -> dict[str, Any]:
    """A *command* of the API: a string is for a shell, anything else is argv."""
    body: dict[str, Any] = (
        {"shell": command} if isinstance(command, str) else {"argv": [str(w) for w in command]}
    )
    return body | {key: value for key, value in options.items() if value is not None}


class AsyncCommandStream:
    """Iterate it to the end, then `result` is there. It runs from the first step, or from `open`.

    Leaving it early (`close`, or the end of its `with` block) ends a command after 10 s; a job it
    leaves alone.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        first: Mapping[str, Any] | None = None,
        offsets: tuple[int, int] = (0, 0),
    ) -> None:
        self.pid: int | None = None
        self._transport = transport
        self._path = path
        self._query = query
        self._first = first
        self._socket: AsyncWebSocket | None = None
        self._result: CommandResult | None = None
        self._offsets = {STDOUT: offsets[0], STDERR: offsets[1]}
        kind = codecs.getincrementaldecoder("utf-8")
        self._decoders = {STDOUT: kind("replace"), STDERR: kind("replace")}

    @property
    def result(self) -> CommandResult:
        """How it ended. Its output is not in it: that was read from here."""
        if self._result is None:
            raise InvalidInputError("the command has not ended", hint="read its output to the end")
        return self._result

    async def open(self) -> AsyncCommandStream:
        """Starts the command; without it, the first step does. Once only."""
        if self._socket is None:
            self._socket = await self._transport.websocket(self._path, query=self._query)
            if self._first is not None:
                await self._socket.send(
                    frames.TEXT, json.dumps(self._first).encode(), seconds=CALL_SECONDS
                )
        return self

    def __aiter__(self) -> AsyncCommandStream:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.read()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def read(self, *, seconds: float | None = None) -> Chunk | None:
        """The next piece of output, None at the end. DaemonTimeoutError after `seconds`."""
        if self._result is not None:
            return self._flush()
        await self.open()
        assert self._socket is not None
        while self._result is None:
            message = await self._socket.receive(seconds=seconds)
            if not message:
                self._socket.stream.close()
                raise DaemonError(
                    "the connection to the command was lost",
                    hint="how it ended is not known; a job can be attached to again",
                )
            if message[0] in (STDOUT, STDERR):
                return self._chunk(message[0], message[1:])
            if message[0] == CONTROL:
                await self._notice(wire.parse_object(message[1:]))
        return self._flush()

    async def wait(self) -> CommandResult:
        """Reads to the end and drops the output."""
        while await self.read() is not None:
            pass
        return self.result

    async def write(self, data: bytes | str) -> None:
        """To its stdin (`stdin=True`). Waits while the command does not read."""
        view = memoryview(data.encode() if isinstance(data, str) else data)
        for start in range(0, len(view), _STDIN_CHUNK):
            await self._send(bytes((STDIN,)) + view[start : start + _STDIN_CHUNK])

    async def close_stdin(self) -> None:
        await self._control(eof=True)

    async def signal(self, number: int) -> None:
        await self._control(signal=int(number))

    async def kill(self) -> None:
        """The whole tree, whatever it did to hide."""
        await self._control(kill=True)

    async def resize(self, rows: int, columns: int) -> None:
        await self._control(rows=rows, columns=columns)

    async def close(self) -> None:
        """Lets go of it. Idempotent."""
        if self._socket is not None:
            await self._socket.close()

    async def __aenter__(self) -> AsyncCommandStream:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _chunk(self, channel: int, data: bytes) -> Chunk:
        offset = self._offsets[channel]
        self._offsets[channel] = offset + len(data)
        text = self._decoders[channel].decode(data)
        return Chunk("stdout" if channel == STDOUT else "stderr", data, text, offset)

    def _flush(self) -> Chunk | None:
        """Half a character at the very end is a mark of its own."""
        for channel, decoder in self._decoders.items():
            if text := decoder.decode(b"", True):
                decoder.reset()
                name = "stdout" if channel == STDOUT else "stderr"
                return Chunk(name, b"", text, self._offsets[channel])  # type: ignore[arg-type]
        return None

    async def _notice(self, body: dict[str, Any]) -> None:
        match body.get("event"):
            case "started":
                self.pid = body.get("pid")
            case "offset":
                if body.get("channel") in self._offsets:
                    self._offsets[body["channel"]] = body["offset"]
            case "exit":
                self._result = CommandResult.of(body)
                await self.close()
            case "error":
                await self.close()
                raise wire.error_of(body)

    async def _control(self, **body: Any) -> None:
        await self._send(bytes((CONTROL,)) + json.dumps(body).encode())

    async def _send(self, data: bytes) -> None:
        await self.open()
        assert self._socket is not None
        await self._socket.send(frames.BINARY, data)
