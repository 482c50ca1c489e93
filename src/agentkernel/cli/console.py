"""This terminal at one end of a stream, a command in a sandbox at the other.

One thread and `poll`: no byte is read before the one ahead of it is out of our hands, so a slow
reader of ours slows the command, and signals get through whatever waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Iterator
from typing import Any

from agentkernel.cli.outcome import BROKEN_PIPE, INTERRUPTED, say
from agentkernel.cli.terminal import Terminal
from agentkernel.client import frames, wire
from agentkernel.client.results import CommandResult
from agentkernel.errors import AgentKernelError, DaemonError

_STDIN, _STDOUT, _STDERR, _CONTROL = 0, 1, 2, 3
_CHUNK = 1 << 16
_AHEAD = 1 << 18
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_GOODBYE_SECONDS = 5.0


class Console:
    """`follow`: a job, which goes on without us; signals end our listening, not the job."""

    def __init__(
        self,
        connection: socket.socket,
        decoder: frames.Decoder,
        *,
        terminal: Terminal | None = None,
        stdin: bool = False,
        follow: bool = False,
    ) -> None:
        self._socket = connection
        self._decoder = decoder
        self._terminal = terminal
        self._stdin = stdin
        self._follow = follow
        self._outgoing = bytearray()
        self._output: memoryview = memoryview(b"")
        self._output_fd = 1
        self._pieces = {fd: _piece(fd) for fd in (1, 2)}
        self._hears = True
        self._counts = dict.fromkeys(_FORWARDED, 0)
        self._wake = -1
        self._result: CommandResult | None = None

    def attend(self) -> CommandResult | int:
        """Carries bytes and signals both ways until the command ends: its end, or our own code."""
        with self._signals(), self._terminal.raw() if self._terminal else contextlib.nullcontext():
            try:
                return self._loop()
            except BrokenPipeError:
                if not self._follow:
                    self._control(kill=True)
                    self._wait_for_the_end()
                return BROKEN_PIPE
            finally:
                self._socket.close()

    def _loop(self) -> CommandResult | int:
        while True:
            while not self._output and (message := self._decoder.next()) is not None:
                self._take(*message)
            if self._result is not None and not self._output:
                return self._result
            ready = self._poll()
            if self._wake in ready and (code := self._heed()) is not None:
                return code
            if self._stdin and 0 in ready:
                self._read_stdin()
            if self._output and self._output_fd in ready:
                piece = self._output[: self._pieces[self._output_fd]]
                self._output = self._output[os.write(self._output_fd, piece) :]
            events = ready.get(self._socket.fileno(), 0)
            if events & select.POLLOUT:
                self._send()
            if events & ~select.POLLOUT and not self._output:
                self._receive()

    def _poll(self) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        wanted = 0 if self._output else select.POLLIN
        if self._outgoing:
            wanted |= select.POLLOUT
        if wanted:
            poll.register(self._socket, wanted)
        if self._stdin and len(self._outgoing) < _AHEAD:
            poll.register(0, select.POLLIN)
        if self._output:
            poll.register(self._output_fd, select.POLLOUT)
        return dict(poll.poll())

    # -- from the command -----------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise DaemonError(
                "the connection to the command was lost",
                hint="how it ended is not known; `agentkernel daemon logs` may say more",
            )
        self._decoder.feed(data)

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == frames.PING:
            self._outgoing += frames.encode(frames.PONG, payload)
        if opcode not in (frames.BINARY, frames.TEXT) or not payload:
            return
        if payload[0] in (_STDOUT, _STDERR):
            self._output_fd = payload[0]
            self._output = memoryview(payload)[1:]
        elif payload[0] == _CONTROL:
            body = wire.parse_object(payload[1:])
            match body.get("event"):
                case "exit":
                    self._result = CommandResult.of(body)
                case "error":
                    raise wire.error_of(body)
                case "offset":
                    say("some older output is not kept any more")

    # -- to the command -------------------------------------------------------------------------

    def _read_stdin(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if data:
            self._outgoing += frames.encode(frames.BINARY, bytes((_STDIN,)) + data)
        else:
            self._stdin = False
            self._control(eof=True)

    def _control(self, **body: Any) -> None:
        if self._hears:
            text = json.dumps(body).encode()
            self._outgoing += frames.encode(frames.BINARY, bytes((_CONTROL,)) + text)

    def _send(self) -> None:
        try:
            del self._outgoing[: self._socket.send(self._outgoing[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:
            # It hears no more; how the command ended may still be on its way to us.
            self._hears = self._stdin = False
            self._outgoing.clear()

    def _wait_for_the_end(self) -> None:
        """Sends what is to be sent and drops what comes, until the command has ended: a stream that
        is closed at once may take a last word with it."""
        deadline = time.monotonic() + _GOODBYE_SECONDS
        self._stdin, self._output = False, memoryview(b"")
        while self._result is None and time.monotonic() < deadline:
            wanted = [self._socket] if self._outgoing else []
            readable, writable, _ = select.select([self._socket], wanted, [], _GOODBYE_SECONDS)
            if writable:
                self._send()
            try:
                if readable:
                    self._receive()
                while (message := self._decoder.next()) is not None:
                    self._take(*message)
            except AgentKernelError:
                return

    # -- signals --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """A signal becomes a byte in a pipe, which `poll` sees; nothing is done in a handler."""
        self._wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers = [*_FORWARDED, *([signal.SIGWINCH] if self._terminal else [])]
        before = {number: signal.signal(number, _nothing) for number in numbers}
        wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wake)
            os.close(write)

    def _heed(self) -> int | None:
        """Passes signals on; a code: we are to end."""
        for number in os.read(self._wake, 64):
            if number == signal.SIGWINCH and self._terminal:
                rows, columns = self._terminal.size()
                self._control(rows=rows, columns=columns)
            elif number in self._counts:
                if self._follow:
                    return INTERRUPTED if number == signal.SIGINT else 128 + number
                self._counts[signal.Signals(number)] += 1
                again = self._counts[signal.Signals(number)] > 1
                if again and number in (signal.SIGINT, signal.SIGTERM):
                    self._control(kill=True)  # asked twice: it did not listen
                    self._send()
                    if self._outgoing:
                        # Input that the command does not take is in the way. Our going ends it.
                        say("the command is left to end; that takes up to 10 s")
                        return 128 + number
                else:
                    self._control(signal=number)
        return None


def _nothing(number: int, frame: object) -> None:
    pass


def _piece(fd: int) -> int:
    """How much a descriptor that is ready takes without blocking."""
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        regular = False
    return _CHUNK if regular else select.PIPE_BUF
