# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""A command whose output is read while it runs."""

from __future__ import annotations

import codecs
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from agentkernel.client import frames, wire
from agentkernel.client._sync.transport import CALL_SECONDS, Transport
from agentkernel.client._sync.websocket import WebSocket
from agentkernel.client.socket_stream import Turns
from agentkernel.client.results import Chunk, CommandResult
from agentkernel.errors import DaemonError, InvalidInputError

STDIN, STDOUT, STDERR, CONTROL = 0, 1, 2, 3
_STDIN_CHUNK = 1 << 16
# What the daemon reads ahead of stdin, unless it says another number.
_STDIN_WINDOW = 1 << 18
# How much output a write that waits may put aside.
_MOST_ASIDE = 1 << 20
Command = str | Sequence[str]


def command_body(command: Command, options: Mapping[str, Any]) -> dict[str, Any]:
    """A *command* of the API: a string is for a shell, anything else is argv."""
    body: dict[str, Any] = (
        {"shell": command} if isinstance(command, str) else {"argv": [str(w) for w in command]}
    )
    return body | {key: value for key, value in options.items() if value is not None}


class CommandStream:
    """Iterate it to the end, then `result` is there. It runs from the first step, or from `open`.

    Leaving it early (`close`, or the end of its `with` block) ends a command after 10 s, and one of
    `run_stream` at once; a job it leaves alone. `notices` are sentences about what does not hold in
    the sandbox, and `truncated` is how far each of its streams was delivered, if not to its end.
    `stdin_offset`: of a job, how much of its stdin had come before this was attached to it.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        first: Mapping[str, Any] | None = None,
        offsets: tuple[int, int] = (0, 0),
    ) -> None:
        self.pid: int | None = None
        self.stdin_offset: int | None = None
        self.notices: list[str] = []
        self.truncated: dict[str, int] = {}
        self._transport = transport
        self._path = path
        self._query = query
        self._first = first
        self._socket: WebSocket | None = None
        self._result: CommandResult | None = None
        self._over = False
        self._turns = Turns()
        self._aside: deque[Chunk] = deque()
        self._size_aside = 0
        # None: the daemon does not say what was taken.
        self._window: int | None = _STDIN_WINDOW
        self._sent = 0
        self._taken = 0
        self._offsets = {STDOUT: offsets[0], STDERR: offsets[1]}
        kind = codecs.getincrementaldecoder("utf-8")
        self._decoders = {STDOUT: kind("replace"), STDERR: kind("replace")}

    @property
    def result(self) -> CommandResult:
        """How it ended. Its output is not in it: that was read from here."""
        if self._result is None:
            raise InvalidInputError("the command has not ended", hint="read its output to the end")
        return self._result

    @property
    def offsets(self) -> tuple[int, int]:
        """Of stdout and stderr: where what comes next begins in all that was ever written."""
        return self._offsets[STDOUT], self._offsets[STDERR]

    def open(self) -> CommandStream:
        """Starts the command; without it, the first step does. Once only."""
        if self._socket is None:
            self._socket = self._transport.websocket(self._path, query=self._query)
            if self._first is not None:
                self._socket.send(
                    frames.TEXT, json.dumps(self._first).encode(), seconds=CALL_SECONDS
                )
        return self

    def __iter__(self) -> CommandStream:
        return self

    def __next__(self) -> Chunk:
        chunk = self.read()
        if chunk is None:
            raise StopIteration
        return chunk

    def read(self, *, seconds: float | None = None) -> Chunk | None:
        """The next piece of output, None at the end. DaemonTimeoutError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._aside and not self._over:
            self._step(deadline)
        if self._aside:
            chunk = self._aside.popleft()
            self._size_aside -= len(chunk.data)
            return chunk
        return self._flush()

    def _step(self, deadline: float | None) -> None:
        """Takes one message, or returns when somebody else has."""
        self.open()
        assert self._socket is not None
        if not self._turns.take(deadline):
            return
        try:
            if self._over:
                return
            seconds = None if deadline is None else deadline - time.monotonic()
            message = self._socket.receive(seconds=seconds)
            if not message:
                self._socket.stream.close()
                raise DaemonError(
                    "the connection to the command was lost",
                    hint="how it ended is not known; a job can be attached to again",
                )
            if message[0] in (STDOUT, STDERR):
                self._aside.append(self._chunk(message[0], message[1:]))
                self._size_aside += len(message) - 1
            elif message[0] == CONTROL:
                self._notice(wire.parse_object(message[1:]))
        finally:
            self._turns.give_back()

    def started(self, *, seconds: float | None = None) -> None:
        """Returns when it runs (`pid`), or has ended. DaemonTimeoutError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.pid is None and not self._over:
            self._step(deadline)

    def wait(self) -> CommandResult:
        """Reads to the end and drops the output."""
        while self.read() is not None:
            pass
        return self.result

    def write(self, data: bytes | str) -> None:
        """To its stdin (`stdin=True`). Waits while the command does not read; signals get past.

        Output that comes meanwhile is put aside for `read`, 1 MiB of it: whoever writes to a
        command that answers at length has to read at the same time.
        """
        view = memoryview(data.encode() if isinstance(data, str) else data)
        for start in range(0, len(view), _STDIN_CHUNK):
            piece = view[start : start + _STDIN_CHUNK]
            while self._must_wait(len(piece)):
                self._step(None)
            if self._over:
                return  # nobody is left to take it
            self._sent += len(piece)
            self._send(bytes((STDIN,)) + piece)

    def _must_wait(self, size: int) -> bool:
        if self._window is None or self._over or self._size_aside > _MOST_ASIDE:
            return False
        return self._sent - self._taken + size > self._window

    def close_stdin(self) -> None:
        self._control(eof=True)

    def signal(self, number: int) -> None:
        self._control(signal=int(number))

    def kill(self) -> None:
        """The whole tree, whatever it did to hide."""
        self._control(kill=True)

    def resize(self, rows: int, columns: int) -> None:
        self._control(rows=rows, columns=columns)

    def close(self) -> None:
        """Lets go of it. Idempotent."""
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> CommandStream:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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

    def _notice(self, body: dict[str, Any]) -> None:
        match body.get("event"):
            case "started":
                self.pid = body.get("pid")
                self._window = body.get("stdin_window")
                self.stdin_offset = body.get("stdin_offset")
            case "taken":
                self._taken = body["bytes"]
            case "notice":
                self.notices.append(str(body.get("text")))
            case "truncated":
                name = "stdout" if body.get("channel") == STDOUT else "stderr"
                self.truncated[name] = body["offset"]
            case "caught_up":
                self._offsets = {STDOUT: body["stdout_offset"], STDERR: body["stderr_offset"]}
                self._over = True
                self.close()
            case "offset":
                if body.get("channel") in self._offsets:
                    self._offsets[body["channel"]] = body["offset"]
            case "exit":
                self._result = CommandResult.of(body)
                self._over = True
                self.close()
            case "error":
                self.close()
                raise wire.error_of(body)

    def _control(self, **body: Any) -> None:
        self._send(bytes((CONTROL,)) + json.dumps(body).encode())

    def _send(self, data: bytes) -> None:
        self.open()
        assert self._socket is not None
        self._socket.send(frames.BINARY, data)
