"""After any crash: what the rows say, what the machine has, and making the two one again.

A sandbox that can't be dealt with now keeps its row, which says why, and keeps nobody else from
being found: it can be removed, and the next start tries again.
"""

from __future__ import annotations

import logging

import msgspec

from agentkernel import faults
from agentkernel.audit.trail import Trail
from agentkernel.backends.base import Backend, Blueprint, Sandbox
from agentkernel.backends.registry import Backends
from agentkernel.errors import AgentKernelError, InvalidInputError
from agentkernel.kernel.live import Live
from agentkernel.kernel.store import SandboxRecord, Store, event_of

log = logging.getLogger("agentkernel.kernel")


async def reconcile(store: Store, backends: Backends, trail: Trail) -> dict[str, Live]:
    """Ends what was under way, finds what still runs, removes what has no row."""
    live: dict[str, Live] = {}
    faults.point("reconcile.begin")
    records = await store.all_sandboxes()
    for record in records:
        live[record.id] = Live(record.id)
        try:
            backend = backends[record.backend]
        except InvalidInputError as exc:
            # Made by another version, which may come back: nothing of it is ours to remove.
            await _unavailable(store, record, exc.message)
            continue
        await _settle(store, backend, trail, record, live)
        faults.point("reconcile.found")
    known = {record.id for record in records}
    faults.point("reconcile.orphan")
    for backend in backends:
        for id in backend.kept():
            if id not in known:
                await _remove_orphan(backend, id)
    faults.point("reconcile.done")
    return live


async def _settle(
    store: Store, backend: Backend, trail: Trail, record: SandboxRecord, live: dict[str, Live]
) -> None:
    match record.state:
        case "creating" | "removing":
            reason = f"interrupted while {record.state}"
            await _remove(store, backend, trail, record, live, reason)
        case "stopped":
            # A start that nobody was told of may have left something.
            try:
                await backend.end(record.id)
            except AgentKernelError as exc:
                await _unavailable(store, record, exc.message)
        case "running" | "error":
            await _find_again(store, backend, trail, record, live)


async def _find_again(
    store: Store, backend: Backend, trail: Trail, record: SandboxRecord, live: dict[str, Live]
) -> None:
    try:
        sandbox: Sandbox | None = await backend.reattach(
            msgspec.convert(record.blueprint, Blueprint)
        )
    except AgentKernelError as exc:
        # Its process lives but does not answer, or nobody could look: only its owner may decide to
        # end it.
        await _unavailable(store, record, exc.message)
        return
    if sandbox:
        live[record.id].begin(sandbox)
        if record.state == "error":
            await store.update_sandbox(
                record.id,
                state="running",
                error=None,
                events=[event_of(record, "sandbox.available")],
            )
        return
    reason = "it did not run any more"
    if record.ephemeral:
        await _remove(store, backend, trail, record, live, reason)
        return
    trail.note("sandbox.stop", sandbox=record.id, name=record.name, reason=reason)
    lost = await store.mark_jobs_lost(record.id)
    await store.update_sandbox(
        record.id,
        state="stopped",
        expires_at=None,
        error=None,
        events=[event_of(record, "sandbox.stopped", reason=reason, lost_jobs=len(lost))],
    )


async def _unavailable(store: Store, record: SandboxRecord, reason: str) -> None:
    if (record.state, record.error) == ("error", reason):
        return
    await store.update_sandbox(
        record.id,
        state="error",
        error=reason,
        events=[event_of(record, "sandbox.unavailable", reason=reason)],
    )


async def _remove(
    store: Store,
    backend: Backend,
    trail: Trail,
    record: SandboxRecord,
    live: dict[str, Live],
    reason: str,
) -> None:
    trail.note("sandbox.remove", sandbox=record.id, name=record.name, reason=reason)
    try:
        await backend.remove(record.id)
    except AgentKernelError as exc:
        await store.update_sandbox(record.id, state="removing", error=exc.message)
        return
    await store.remove_sandbox(
        record.id, events=[event_of(record, "sandbox.removed", reason=reason)]
    )
    del live[record.id]


async def _remove_orphan(backend: Backend, id: str) -> None:
    try:
        await backend.remove(id)
    except AgentKernelError as exc:
        log.warning("something that has no row can't be removed: %s: %s", id, exc.message)
