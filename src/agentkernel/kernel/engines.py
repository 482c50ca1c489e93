"""What this machine can do: its engines, looked for or tried, and the health of the install."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from agentkernel.backends.base import Features
from agentkernel.kernel import checks, health
from agentkernel.kernel.checks import Check
from agentkernel.kernel.health import Finding


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A backend of this version. `found`: its program is there. `works`: what the last try showed;
    null if there was none since the daemon started. `checked_at`: when that was."""

    name: str
    isolation: str
    features: Features
    found: bool
    works: bool | None
    detail: str
    hint: str | None
    checked_at: float | None


class Engines:
    """The engines of one state directory. They are tried one at a time: a try makes sandboxes."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._trying = asyncio.Lock()
        self._tried: dict[str, tuple[float, Check]] = {}

    async def look(self) -> list[Engine]:
        """Cheap: nothing is tried."""
        return [self._engine(check) for check in checks.look_for_backends(self._state_dir)]

    async def check(self) -> list[Engine]:
        """Tries each that is there."""
        async with self._trying:
            for check in await checks.check_backends(self._state_dir):
                if check.supported:
                    self._tried[check.backend] = (time.time(), check)
        return await self.look()

    async def examine(self, known: set[str]) -> list[Finding]:
        """What `doctor` says. `known`: ids of the sandboxes that have a record."""
        async with self._trying:
            # Looked for first: the sandboxes that `examine` makes remove what runs have left.
            left = health.leftovers(str(self._state_dir), known)
            found = await health.examine(str(self._state_dir))
            return [*found, health.records(str(self._state_dir)), left]

    def _engine(self, look: Check) -> Engine:
        at, check = self._tried.get(look.backend, (None, look))
        return Engine(
            name=look.backend,
            isolation=look.isolation or "",
            features=msgspec.convert(look.features, Features),
            found=look.found,
            works=None if at is None else check.works,
            detail=check.detail,
            hint=check.hint,
            checked_at=at,
        )
