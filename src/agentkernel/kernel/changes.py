"""What of a sandbox can change while it stays what it is: its name, its labels, its clocks.

None of it touches a process. Rows change one after the other, so that of two changes of labels at
the same time none is lost.
"""

from __future__ import annotations

import time

from agentkernel.audit.trail import audited
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.reaper import Reaper
from agentkernel.kernel.store import SandboxRecord, event_of
from agentkernel.kernel.updates import SandboxUpdate
from agentkernel.kernel.uses import Uses


class Changes(Uses):
    """The part of a `Kernel` that changes rows alone."""

    _reaper: Reaper

    @audited("sandbox.extend")
    async def extend(
        self, id: str, ttl_seconds: float, *, owner: str | None = None
    ) -> SandboxRecord:
        """The time to live begins anew, from now."""
        if not ttl_seconds > 0:
            raise InvalidInputError("the ttl must be more than 0 s")
        record, _ = await self._find(id, owner)
        record = await self._store.update_sandbox(
            record.id, ttl_seconds=ttl_seconds, expires_at=time.time() + ttl_seconds
        )
        self._reaper.wake()
        return record

    @audited("sandbox.update")
    async def update(
        self, id: str, update: SandboxUpdate, *, owner: str | None = None
    ) -> SandboxRecord:
        """Changes what is given of it. Raises ConflictError for a name that another one has."""
        record, live = await self._find(id, owner)
        changes = update.given()
        if record.ephemeral and "stop" in (changes.get("on_ttl"), changes.get("on_idle")):
            raise InvalidInputError(
                "a sandbox whose files are in memory can't be stopped, only removed"
            )
        if not changes:
            return record
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            told = event_of(record, "sandbox.updated", changed=sorted(changes))
            if labels := changes.get("labels"):
                merged = {**record.labels, **labels}
                changes["labels"] = {k: v for k, v in merged.items() if v is not None}
            if "ttl_seconds" in changes and record.state == "running":
                ttl = changes["ttl_seconds"]
                changes["expires_at"] = None if ttl is None else time.time() + ttl
            record = await self._store.update_sandbox(record.id, events=[told], **changes)
        self._reaper.wake()
        return record
