"""How a command ended: the words, shared by both ends of every door."""

from __future__ import annotations

import signal as signals
from enum import StrEnum


class Outcome(StrEnum):
    """How a command ended. Only `exited` has an exit code; none is ever invented."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    OOM = "oom"
    NOT_STARTED = "not_started"
    LOST = "lost"


def signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
