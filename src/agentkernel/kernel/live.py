"""Sandboxes as a kernel holds them in memory: who uses them, and the lock for their life.

What must hold: whoever changes a sandbox's state has its `changing` lock, and holds nothing else
while waiting for it. Using a sandbox (a command, a file call) takes no lock: a long command never
delays anything but the idle clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentkernel.backends.base import Sandbox
from agentkernel.errors import ConflictError, GuestTimeoutError, SandboxUnavailableError
from agentkernel.guest.processes import ExitStatus
from agentkernel.kernel.insight import Meter


class Live:
    """One sandbox. `sandbox` is None while it does not run."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.sandbox: Sandbox | None = None
        self.changing = asyncio.Lock()
        # Held by whoever looks at its workspace from inside.
        self.viewing = asyncio.Lock()
        # Why its making failed, for those who wait for it.
        self.failure: BaseException | None = None
        self.running_jobs: set[str] = set()
        # Jobs that have a row while agentd may not have heard of them.
        self.starting_jobs: set[str] = set()
        # Jobs whose end is known and not yet in their rows.
        self.judged: dict[str, ExitStatus] = {}
        self.meter = Meter()
        # What `watch` knows: when agentd answered last, that it does not, that PID 1 is gone.
        self.answered_at = time.monotonic()
        self.silent = False
        self.ended = False
        self._users = 0
        self._last_use = time.monotonic()

    def begin(self, sandbox: Sandbox) -> None:
        """It runs, and answers, from now on."""
        self.sandbox = sandbox
        self.answered_at = time.monotonic()
        self.silent = self.ended = False

    def idle_seconds(self) -> float:
        """Since the last call ended, while nothing runs; 0 while anything does."""
        if self._users or self.running_jobs:
            return 0.0
        return time.monotonic() - self._last_use

    @contextmanager
    def used(self) -> Iterator[Sandbox]:
        """The running sandbox, for the time of one call."""
        sandbox = self.sandbox
        if sandbox is None:
            raise ConflictError("the sandbox is not running", hint="start it first")
        if sandbox.channel.closed.done():
            raise SandboxUnavailableError(
                "the sandbox does not answer any more", hint="stop it and start it again"
            )
        self.check_answers()
        self._users += 1
        try:
            yield sandbox
        finally:
            self._users -= 1
            self._last_use = time.monotonic()

    def check_answers(self) -> None:
        """Raises at once what a call would find out by waiting."""
        if self.silent:
            seconds = time.monotonic() - self.answered_at
            raise GuestTimeoutError(
                f"the sandbox's agentd has not answered for {seconds:.0f} s",
                hint="it may be stopped or starved; wait, or stop the sandbox and start it again",
            )

    def touch(self) -> None:
        self._last_use = time.monotonic()
