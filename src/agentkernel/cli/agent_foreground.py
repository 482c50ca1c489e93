"""An agent's session at this terminal: interactive, or headless with what it prints.

The session belongs to the daemon. A daemon that is started anew is found again, and the session is
gone on with from where it was read; on a terminal the agent draws it anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Final

from agentkernel.cli.agent_lines import Lines
from agentkernel.cli.casts import frames_of
from agentkernel.cli.console import Console
from agentkernel.cli.escapes import Modes, Screen
from agentkernel.cli.local_files import write_all
from agentkernel.cli.outcome import INTERRUPTED, Ended, say
from agentkernel.cli.terminal import Terminal
from agentkernel.client._sync.agent_sessions import AgentSession
from agentkernel.client._sync.jobs import Job, find_job
from agentkernel.client._sync.transport import Transport
from agentkernel.client.wire import segment
from agentkernel.errors import AgentKernelError, ConflictError, DaemonError, NotFoundError

# Of what a terminal has shown: enough for a screen of it, with its colours.
RECENT: Final = 1 << 16
# For a daemon to come back in.
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.2
# How often a connection may be lost at once before that is what is wrong.
_TRIES: Final = 5
_LASTING: Final = 5.0


class LeftBehind(Exception):
    """The user went away. `goes_on`: the session does; else it was ended before."""

    def __init__(self, code: int = 0, *, goes_on: bool = True) -> None:
        super().__init__(code)
        self.code = code
        self.goes_on = goes_on

    def tell(self, session: AgentSession) -> None:
        if self.goes_on:
            say(f"it goes on; back to it: agentkernel agent attach {session.id}")
        else:
            say(f"the agent is stopped; what it changed: agentkernel agent diff {session.id}")


class _Told(Exception):
    """Somebody wants this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interactive(transport: Transport, session: AgentSession, *, again: bool = False) -> Ended:
    """The agent's terminal on this one, until it ends. Raises LeftBehind. `again`: it has been
    shown somewhere before, so that only its end is fetched."""
    job = _job_of(session)
    terminal = Terminal()
    daemon = _Daemon(transport, job)
    while True:
        rows, columns = terminal.size()
        query = {"rows": rows, "columns": columns}
        screen = Screen()
        try:
            if again:
                query["recent"] = RECENT
                write_all(1, screen.pass_on(_modes_of(session)))
            web = transport.websocket(f"/v1/jobs/{segment(job)}/attach", query=query)
            console = Console(
                web.stream.detach(), web.decoder, terminal=terminal, stdin=True, follow=True,
                screen=screen,
            )  # fmt: skip
            ended = console.attend()
        except DaemonError as error:
            say("the daemon went away; the agent goes on")
            daemon.lost(error)
            again = True
            continue
        if isinstance(ended, int):
            raise LeftBehind(ended)
        return ended


def _job_of(session: AgentSession) -> str:
    job: str | None = session.info["job"]
    if job is None:
        raise ConflictError(session.info["error"] or "the agent was not started")
    return job


def _modes_of(session: AgentSession) -> bytes:
    """What sets this terminal as the agent has set the one it began on."""
    modes = Modes()
    with contextlib.suppress(NotFoundError):
        for frame in frames_of([session.recording()]):
            match frame:
                case [_, "o", str(text)]:
                    modes.feed(text.encode("utf-8", "replace"))
    return modes.redo()


def headless(
    transport: Transport, session: AgentSession, *, raw: bool, quiet: bool = False
) -> Ended:
    """What the agent prints, until it ends: unchanged on stdout (`raw`), or as lines for people.
    Ctrl-C asks it to stop, a second one ends it; when this process is to end, so is the agent:
    nobody would know that it goes on. Raises LeftBehind."""
    with _told():
        try:
            return _until_end(transport, session, _Shown(raw=raw, quiet=quiet), ends=True)
        except _Told as told:
            session.stop()
            raise LeftBehind(128 + told.number, goes_on=False) from None
        except BrokenPipeError:
            session.stop()
            raise


def listened(transport: Transport, session: AgentSession) -> Ended:
    """The same for somebody who came later: the agent goes on without them. Raises LeftBehind."""
    with _told():
        try:
            return _until_end(transport, session, _Shown(raw=False, quiet=False), ends=False)
        except _Told as told:
            raise LeftBehind(128 + told.number) from None


@contextlib.contextmanager
def _told() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise _Told(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_end(transport: Transport, session: AgentSession, shown: _Shown, *, ends: bool) -> Ended:
    job = find_job(transport, _job_of(session))
    daemon = _Daemon(transport, job.id)
    asked = 0
    while True:
        try:
            return _follow(job, shown)
        except KeyboardInterrupt:
            asked += 1
            if asked > 2 or not ends:
                raise LeftBehind(INTERRUPTED) from None
            say("ending the agent" if asked > 1 else "asking the agent to stop; again: ends it")
            if asked > 1:
                job.kill()
            else:
                job.signal(signal.SIGINT)
        except DaemonError as error:
            daemon.lost(error)


def _follow(job: Job, shown: _Shown) -> Ended:
    if job.refresh().state == "lost":
        raise ConflictError(
            "the agent was lost with its sandbox's processes",
            hint="its changes are still there: `agentkernel agent diff SESSION`",
        )
    with job.output(
        stdout_offset=shown.offsets["stdout"], stderr_offset=shown.offsets["stderr"]
    ) as output:
        for chunk in output:
            shown.take(chunk.stream, chunk.data, chunk.offset)
        result = output.result
    shown.end()
    return Ended({
        "outcome": result.outcome, "exit_code": result.exit_code, "signal": result.signal,
        "errno": result.errno, "stage": result.stage,
    })  # fmt: skip


class _Daemon:
    """The one at the other end, which may be started anew."""

    def __init__(self, transport: Transport, job: str) -> None:
        self._transport = transport
        self._path = f"/v1/jobs/{segment(job)}"
        self._tries = 0
        self._since = time.monotonic()

    def lost(self, error: DaemonError) -> None:
        """Returns when it answers again; it is started if need be. Raises what was the matter."""
        lasted = time.monotonic() - self._since > _LASTING
        self._tries = 1 if lasted else self._tries + 1
        if self._tries > _TRIES:
            raise error
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._transport.call("GET", self._path)
                self._since = time.monotonic()
                return
            except DaemonError:
                if time.monotonic() > deadline:
                    raise error from None
                time.sleep(_PAUSE)
            except AgentKernelError:
                raise error from None


class _Shown:
    """What was shown, and how far."""

    def __init__(self, *, raw: bool, quiet: bool) -> None:
        self.offsets = {"stdout": 0, "stderr": 0}
        self._raw = raw
        self._quiet = quiet
        self._lines = Lines()
        self._errors = Lines()

    def take(self, stream: str, data: bytes, offset: int) -> None:
        if offset > self.offsets[stream]:
            say("some of what the agent printed is not kept any more")
        self.offsets[stream] = offset + len(data)
        if stream == "stdout" and self._raw:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
        elif stream == "stdout":
            for line in self._lines.feed(data):
                print(line, flush=True)
        elif not self._quiet:
            for line in self._errors.feed(data):
                print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if not self._raw:
            for line in self._lines.end():
                print(line, flush=True)
        if not self._quiet:
            for line in self._errors.end():
                print(line, file=sys.stderr, flush=True)


def follow_session(transport: Transport, session: AgentSession, *, again: bool) -> Ended:
    """`agent attach`: as the session is."""
    if session.info["mode"] != "interactive" or not (os.isatty(0) and os.isatty(1)):
        return listened(transport, session)
    say("Ctrl-\\ twice leaves it running")
    return interactive(transport, session, again=again)
