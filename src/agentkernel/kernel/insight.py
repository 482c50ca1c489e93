"""What is known of a sandbox: what holds in it, what it has used, which limits it has met.

What its engine said is kept in the row, so that it can be shown when the sandbox does not run.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from agentkernel.backends.base import (
    NOT_ENFORCED,
    EffectiveLine,
    LimitHit,
    Sandbox,
    SandboxUsage,
    notices,
)
from agentkernel.guest.processes import ExitStatus, Outcome
from agentkernel.kernel.store import NewEvent, SandboxRecord

# A guest can meet a limit thousands of times a second. Of each limit so much is told at most.
TELL_EVERY_S = 60.0
_PLACES = ("/", "/tmp", "/dev/shm", "/run")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The `handle` of a record: as of now while it runs, else as of its last run."""

    effective: tuple[EffectiveLine, ...] = ()
    usage: SandboxUsage | None = None

    @classmethod
    def of(cls, record: SandboxRecord) -> Known:
        try:
            return msgspec.convert(record.handle or {}, cls)
        except msgspec.ValidationError:  # of another version
            return cls()

    @property
    def notices(self) -> list[str]:
        return notices(self.effective)

    def handle(self) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


async def end_counted(
    sandbox: Sandbox | None, end: Callable[[Sandbox], Awaitable[None]]
) -> SandboxUsage | None:
    """Ends a sandbox; what it used in all. One that did not run has used nothing more."""
    if sandbox is None:
        return None
    await sandbox.usage()  # what only a running one can say
    await end(sandbox)
    return await sandbox.usage()


class Meter:
    """Which limits one sandbox has met, told rarely enough for an event store."""

    def __init__(self) -> None:
        self._waiting: dict[str, LimitHit] = {}
        self._told_at: dict[str, float] = {}

    def events(self, sandbox: Sandbox, status: ExitStatus | None = None) -> list[NewEvent]:
        """What is to be told now. What is not stays and is counted with the next."""
        hits = sandbox.limit_hits()
        if status is not None:
            hits += _of_a_command(sandbox, status, {hit.limit for hit in hits})
        for hit in hits:
            before = self._waiting.get(hit.limit)
            times = hit.times + (before.times if before else 0)
            self._waiting[hit.limit] = msgspec.structs.replace(hit, times=times)
        now = time.monotonic()
        due = [name for name in self._waiting if now >= self._told_at.get(name, 0.0)]
        self._told_at |= dict.fromkeys(due, now + TELL_EVERY_S)
        return [_event(sandbox.id, self._waiting.pop(name)) for name in due]


def _event(id: str, hit: LimitHit) -> NewEvent:
    return NewEvent(kind="sandbox.limit", sandbox_id=id, body=msgspec.to_builtins(hit))


def _of_a_command(sandbox: Sandbox, status: ExitStatus, counted: set[str]) -> list[LimitHit]:
    """What a command's end tells: no room for files, no process to start it with."""
    found = []
    lines = {line.what: line for line in sandbox.effective}
    if "pids" not in counted and (status.outcome, status.errno, status.stage) == (
        Outcome.NOT_STARTED,
        "EAGAIN",
        "fork",
    ):
        words = "the sandbox may have no more processes and threads: a command was not started"
        found.append(LimitHit(limit="pids", times=1, words=words))
    places = [place for place in _PLACES if place in (status.full or "").split()]
    if places:
        words = "; ".join(_no_room(place, lines) for place in places)
        found.append(LimitHit(limit="disk", times=1, words=words))
    return found


def _no_room(place: str, lines: dict[str, EffectiveLine]) -> str:
    line = lines.get("disk" if place == "/" else place)
    if place == "/" and (line is None or not _is_bound(line)):
        return "the machine's disk, where the sandbox's files are, has no room left"
    of = f" of {line.value}" if line else ""
    return f"there is no room left for files{of} at {place}"


def _is_bound(line: EffectiveLine) -> bool:
    return line.value != "unbounded" and not line.enforced_by.startswith(NOT_ENFORCED)
