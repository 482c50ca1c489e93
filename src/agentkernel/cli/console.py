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

from agentkernel.cli.notices import published_words, tell_once
from agentkernel.cli.outcome import BROKEN_PIPE, Ended, say, say_progress
from agentkernel.cli.terminal import Leaving, Terminal
from agentkernel.client import frames, wire
from agentkernel.errors import AgentKernelError, DaemonError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

    from agentkernel.cli.escapes import Screen

_STDIN, _STDOUT, _STDERR, _CONTROL = 0, 1, 2, 3
_CHUNK = 1 << 16
_AHEAD = 1 << 18
# What the daemon reads ahead of stdin, unless it says another number.
_STDIN_WINDOW = 1 << 18
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_GOODBYE_SECONDS = 5.0


class Console:
    """`follow`: a job, which goes on without us; signals end our listening, not the job, and on a
    terminal, where Ctrl-C is the job's, Ctrl-\\ twice does (`left`).
    `prepares`: until the command has started signals end us, and so what is made for it.
    `screen`: what passes from the command to the terminal, and how its traces are removed."""

    def __init__(
        self,
        connection: socket.socket,
        decoder: frames.Decoder,
        *,
        terminal: Terminal | None = None,
        stdin: bool = False,
        follow: bool = False,
        prepares: bool = False,
        quiet: bool = False,
        state_dir: str = "",
        screen: Screen | None = None,
    ) -> None:
        self._screen = screen
        self._socket = connection
        self._decoder = decoder
        self._terminal = terminal
        self._stdin = stdin
        self._follow = follow
        self._prepares = prepares
        self._quiet = quiet
        self._state_dir = state_dir
        self._sent = self._taken = 0
        # None: the daemon does not say what was taken.
        self._window: int | None = _STDIN_WINDOW
        self._outgoing = bytearray()
        self._output: memoryview = memoryview(b"")
        self._output_fd = 1
        self._pieces = {fd: _piece(fd) for fd in (1, 2)}
        self._hears = True
        self._counts = dict.fromkeys(_FORWARDED, 0)
        self._wake = -1
        self.left = False
        self._keys = Leaving() if follow and terminal else None
        self._result: Ended | None = None
        self._modes: contextlib.ExitStack

    def attend(self) -> Ended | int:
        """Carries bytes and signals both ways until the command ends: its end, or our own code."""
        with self._signals(), contextlib.ExitStack() as self._modes:
            if not self._prepares:
                self._enter_raw()
            try:
                return self._loop()
            except BrokenPipeError:
                if not self._follow:
                    self._control(kill=True)
                    self._wait_for_the_end()
                return BROKEN_PIPE
            finally:
                self._socket.close()
                if self._screen is not None:
                    with contextlib.suppress(OSError):
                        os.write(1, self._screen.undo(left=self._result is None))

    def _enter_raw(self) -> None:
        if self._terminal:
            self._modes.enter_context(self._terminal.raw())

    def _loop(self) -> Ended | int:
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
                if self.left:
                    return 0
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
        if self._stdin and self._may_send():
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
            if self._screen is not None:
                self._output = memoryview(self._screen.pass_on(payload[1:]))
        elif payload[0] == _CONTROL:
            self._hear(wire.parse_object(payload[1:]))

    def _hear(self, body: dict[str, Any]) -> None:
        match body.get("event"):
            case "started":
                if self._prepares:
                    self._prepares = False
                    self._enter_raw()
                self._window = body.get("stdin_window")
            case "taken":
                self._taken = body["bytes"]
            case "exit":
                self._result = Ended(body)
            case "error":
                raise wire.error_of(body)
            case "offset" if self._terminal is None:
                say("some older output is not kept any more")
            case "truncated":
                name = "stdout" if body.get("channel") == _STDOUT else "stderr"
                say(f"{name} is cut off after {body['offset']} bytes (--output)")
            case "progress" if not self._quiet:
                say_progress(str(body.get("text")))
            case "published" if not self._quiet:
                say(published_words(body))
            case "notice" if not self._quiet:
                tell_once(self._state_dir, [str(body.get("text"))], "agentkernel info")

    # -- to the command -------------------------------------------------------------------------

    def _read_stdin(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if data and self._keys is not None:
            data, self.left = self._keys.cut(data)
            if not data:
                return
        if data:
            self._sent += len(data)
            self._outgoing += frames.encode(frames.BINARY, bytes((_STDIN,)) + data)
        else:
            self._stdin = False
            self._control(eof=True)

    def _may_send(self) -> bool:
        """Of stdin no more is under way than the daemon reads ahead: signals get past it. What is
        typed before there is a command stays with the terminal."""
        if len(self._outgoing) >= _AHEAD or (self._terminal and self._prepares):
            return False
        return self._window is None or self._sent - self._taken + _CHUNK <= self._window

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
            if self._result is not None:
                # The outcome is known: one Ctrl-C too many must not replace it.
                before[signal.SIGINT] = signal.SIG_IGN
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
                if self._follow or self._prepares:
                    return 128 + number
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
