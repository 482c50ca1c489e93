"""What is only looked at: records, what is known of sandboxes, events, the log of actions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkernel.audit.files import DIRECTORY
from agentkernel.audit.reading import Follower, Line, follow_after, lines_after
from agentkernel.kernel.insight import Known
from agentkernel.kernel.store import EventPage, SandboxPage, SandboxRecord, Statistics
from agentkernel.kernel.uses import Uses


class Looks(Uses):
    """The part of a `Kernel` that changes nothing."""

    state_dir: Path

    async def get(self, id: str, *, owner: str | None = None) -> SandboxRecord:
        return await self._store.get_sandbox(id, owner)

    async def list(
        self,
        *,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> SandboxPage:
        return await self._store.find_sandboxes(
            owner, labels=labels, states=states, after=after, limit=limit
        )

    async def known(self, id: str, *, owner: str | None = None) -> Known:
        """What holds in it, what enforces that, and what it has used: now, or in its last run."""
        record, live = await self._find(id, owner)
        if live.sandbox is None:
            return Known.of(record)
        return Known(effective=live.sandbox.effective, usage=await live.sandbox.usage())

    async def events(self, after: int = 0, **filters: Any) -> EventPage:
        return await self._store.events(after, **filters)

    async def wait_for_events(self, after: int) -> int:
        return await self._store.wait_for_events(after)

    async def statistics(self) -> Statistics:
        return await self._store.statistics()

    async def audit_lines(self, after: int | None, limit: int) -> Sequence[Line]:
        """Lines of the log behind number `after`, the oldest first; None: the newest there are."""
        return await asyncio.to_thread(lines_after, self.state_dir / DIRECTORY, after, limit)

    async def follow_audit(self, after: int | None) -> Follower:
        """The same as they come; None: from now on. The caller closes it."""
        return await asyncio.to_thread(follow_after, self.state_dir / DIRECTORY, after)
