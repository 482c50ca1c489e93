"""Records for the tests of the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agentkernel.ids import new_id
from agentkernel.kernel.store import JobRecord, NewEvent, SandboxPage, SandboxRecord, Store

OWNER = "uid:1000"


def sandbox(name: str | None = None, **fields: Any) -> SandboxRecord:
    given: dict[str, Any] = {
        "id": new_id(),
        "name": name,
        "owner": OWNER,
        "backend": "native",
        "blueprint": {"image": "host", "limits": {"pids": 512}, "capabilities": []},
        "created_at": 1000.0,
        "updated_at": 1000.0,
    }
    return SandboxRecord(**{**given, **fields})


def job(sandbox_id: str, **fields: Any) -> JobRecord:
    given: dict[str, Any] = {
        "id": new_id(),
        "sandbox_id": sandbox_id,
        "argv": ["sh", "-c", "echo hello"],
        "created_at": 1000.0,
    }
    return JobRecord(**{**given, **fields})


def numbered(count: int, **fields: Any) -> list[NewEvent]:
    return [NewEvent(kind="test.number", body={"n": n}, **fields) for n in range(count)]


async def all_pages(store: Store, owner: str | None, limit: int, **filters: Any) -> list[str]:
    """Ids over all pages."""
    found: list[str] = []
    after: int | None = None
    while True:
        page: SandboxPage = await store.find_sandboxes(owner, after=after, limit=limit, **filters)
        found += [record.id for record in page.records]
        if page.next is None:
            return found
        after = page.next


def execute(path: Path, *statements: str) -> None:
    """Changes a database behind the store's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
