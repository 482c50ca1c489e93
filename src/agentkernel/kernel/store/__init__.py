"""What the daemon knows, in SQLite: sandboxes, jobs, events, tokens, volumes, sessions of agents.

See docs/reference/state.md.

| module | job |
|---|---|
| `store`, `session_store` | the asynchronous API |
| `records` | rows as typed records; what may be written |
| `sandboxes`, `jobs`, `events`, `tokens`, `volumes`, `sessions` | SQL |
| `workers`, `writer` | the two threads, group commit, syncing, pruning |
| `schema` | creation, migrations, refusals |
| `failures` | SQLite's errors → ours |
| `lock` | one owner of a state directory |
"""

from __future__ import annotations

from agentkernel.kernel.store.lock import StateLock
from agentkernel.kernel.store.records import (
    EventPage,
    EventRecord,
    Idempotency,
    Inserted,
    JobPage,
    JobRecord,
    NewEvent,
    Overseer,
    SandboxPage,
    SandboxRecord,
    SessionRecord,
    SessionRows,
    Statistics,
    TokenRecord,
    VolumeRecord,
    event_of,
)
from agentkernel.kernel.store.store import Store

__all__ = [
    "EventPage",
    "EventRecord",
    "Idempotency",
    "Inserted",
    "JobPage",
    "JobRecord",
    "NewEvent",
    "Overseer",
    "SandboxPage",
    "SandboxRecord",
    "SessionRecord",
    "SessionRows",
    "StateLock",
    "Statistics",
    "Store",
    "TokenRecord",
    "VolumeRecord",
    "event_of",
]
