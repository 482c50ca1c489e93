"""After any crash: what the rows say, what the machine has, and making the two one again."""

from __future__ import annotations

import msgspec

from agentkernel.audit.trail import Trail
from agentkernel.backends.base import Backend, Blueprint, Sandbox
from agentkernel.backends.registry import Backends
from agentkernel.errors import InvalidInputError, SandboxUnavailableError
from agentkernel.kernel.live import Live
from agentkernel.kernel.store import SandboxRecord, Store, event_of


async def reconcile(store: Store, backends: Backends, trail: Trail) -> dict[str, Live]:
    """Ends what was under way, finds what still runs, removes what has no row."""
    live: dict[str, Live] = {}
    records = await store.all_sandboxes()
    for record in records:
        try:
            backend = backends[record.backend]
        except InvalidInputError as exc:
            # Made by another version, which may come back: nothing of it is ours to remove.
            live[record.id] = Live(record.id)
            await _unavailable(store, record, exc.message)
            continue
        if record.state in ("creating", "removing"):
            await _remove(store, backend, trail, record, f"interrupted while {record.state}")
            continue
        live[record.id] = Live(record.id)
        if record.state == "running":
            await _find_again(store, backend, trail, record, live)
    known = {record.id for record in records}
    for backend in backends:
        for id in backend.kept():
            if id not in known:
                await backend.remove(id)
    return live


async def _find_again(
    store: Store, backend: Backend, trail: Trail, record: SandboxRecord, live: dict[str, Live]
) -> None:
    try:
        sandbox: Sandbox | None = await backend.reattach(
            msgspec.convert(record.blueprint, Blueprint)
        )
    except SandboxUnavailableError as exc:
        # Its process lives but does not answer: only its owner may decide to end it.
        await _unavailable(store, record, exc.message)
        return
    if sandbox:
        live[record.id].sandbox = sandbox
        return
    reason = "it did not run any more"
    if record.ephemeral:
        del live[record.id]
        await _remove(store, backend, trail, record, reason)
        return
    trail.note("sandbox.stop", sandbox=record.id, name=record.name, reason=reason)
    lost = await store.mark_jobs_lost(record.id)
    await store.update_sandbox(
        record.id,
        state="stopped",
        expires_at=None,
        events=[event_of(record, "sandbox.stopped", reason=reason, lost_jobs=len(lost))],
    )


async def _unavailable(store: Store, record: SandboxRecord, reason: str) -> None:
    await store.update_sandbox(
        record.id,
        state="error",
        error=reason,
        events=[event_of(record, "sandbox.unavailable", reason=reason)],
    )


async def _remove(
    store: Store, backend: Backend, trail: Trail, record: SandboxRecord, reason: str
) -> None:
    trail.note("sandbox.remove", sandbox=record.id, name=record.name, reason=reason)
    await backend.remove(record.id)
    await store.remove_sandbox(
        record.id, events=[event_of(record, "sandbox.removed", reason=reason)]
    )
