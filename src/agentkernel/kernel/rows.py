"""The row that a sandbox begins with."""

from __future__ import annotations

import asyncio
import contextlib

from agentkernel.errors import AgentKernelError
from agentkernel.kernel.store import Idempotency, Inserted, SandboxRecord, Store


async def insert_row(
    store: Store, record: SandboxRecord, idempotency: Idempotency | None
) -> Inserted:
    """The store carries out a write also for a caller who has gone. Then the row is taken back, as
    nobody else would make anything of it."""
    insert = asyncio.ensure_future(store.insert_sandbox(record, idempotency=idempotency))
    try:
        return await asyncio.shield(insert)
    except asyncio.CancelledError:
        with contextlib.suppress(AgentKernelError):
            if (await insert).created:
                await store.remove_sandbox(record.id)
        raise
