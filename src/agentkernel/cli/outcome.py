"""How a command's end becomes an exit status and a line on stderr, for every verb that runs one."""

from __future__ import annotations

import signal
import sys

from agentkernel.cli.values import printable
from agentkernel.outcomes import Outcome, signal_name

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

TIMED_OUT = 124
OURS = 125
CANT_START = 126
NOT_FOUND = 127
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE


class Ended:
    """A command's end, from an `exit` event; the client's own results are heavier to load."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.outcome = Outcome(body["outcome"])
        self.exit_code: int | None = body.get("exit_code")
        self.signal: int | None = body.get("signal")
        self.errno: str | None = body.get("errno")
        self.stage: str | None = body.get("stage")


def finish(ended: Ended, program: str, timeout: float | None, ttl: float | None = None) -> int:
    """The exit code of design: the command's own, or one of ours with a line that says so."""
    name = printable(program)
    match ended.outcome:
        case Outcome.EXITED:
            assert ended.exit_code is not None
            return ended.exit_code
        case Outcome.SIGNALED:
            assert ended.signal is not None
            say(f"{name} was ended by {signal_name(ended.signal)}")
            return 128 + ended.signal
        case Outcome.TIMEOUT:
            after = "when its time was over" if timeout is None else f"after {timeout:g} s"
            say(f"{name} was ended {after} (--timeout), with all it had started")
            return TIMED_OUT
        case Outcome.OOM:
            say(f"{name} ran out of memory and was ended", "give more with --memory")
            return 128 + signal.SIGKILL
        case Outcome.NOT_STARTED:
            return _not_started(ended, name)
        case _:
            life = "" if ttl is None else f"; it had {ttl:g} s to live (--ttl)"
            say(f"the sandbox ended before the command did{life}")
            return OURS


def _not_started(ended: Ended, name: str) -> int:
    errno, stage = printable(ended.errno or "?"), printable(ended.stage or "?")
    if stage == "exec" and errno == "ENOENT":
        say(f"{name}: not found in the sandbox")
        return NOT_FOUND
    say(f"{name} can't be started: {stage}: {errno}")
    return CANT_START


_told = ""


def say_progress(text: str) -> None:
    """What is being made; on a terminal in the place of what was said of the same before."""
    global _told
    subject, text = text.partition(": ")[0], f"{printable(text)} …"
    again = subject == _told and sys.stderr.isatty()
    _told = subject
    if again:
        print("\x1b[1A\x1b[K", end="", file=sys.stderr)
    say(text)


def say(text: str, hint: str | None = None) -> None:
    # A terminal that a command has may be raw, where a new line does not begin at the left.
    end = "\r\n" if sys.stderr.isatty() else "\n"
    print(f"agentkernel: {text}", file=sys.stderr, end=end)
    if hint:
        print(f"hint: {hint}", file=sys.stderr, end=end)
