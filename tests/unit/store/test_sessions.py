"""Rows of agents' sessions."""

from __future__ import annotations

from typing import Any

import pytest

from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.store import NewEvent, Overseer, SessionRecord, Store

from .making import OWNER, sandbox


def session(**fields: Any) -> SessionRecord:
    given: dict[str, Any] = {
        "id": new_id(),
        "owner": OWNER,
        "agent": "claude",
        "mode": "headless",
        "sandbox_id": new_id(),
        "job_id": new_id(),
        "created_at": 1.0,
    }
    return SessionRecord(**{**given, **fields})


async def test_what_goes_in_comes_out(store: Store) -> None:
    record = session(task="do it", usage={"turns": 2}, request={"words": ["a"]}, own_sandbox=True)
    assert await store.insert_session(record) == record
    assert await store.get_session(record.id, OWNER) == record
    assert await store.get_session(record.id, Overseer("somebody")) == record
    with pytest.raises(NotFoundError):
        await store.get_session(record.id, "other")
    with pytest.raises(ConflictError):
        await store.insert_session(record)


async def test_changes_and_their_events_come_together(store: Store) -> None:
    record = await store.insert_session(session())
    told = NewEvent(kind="agent.started", owner=OWNER)
    changed = await store.update_session(
        record.id, expect_state=("starting",), state="running", events=[told]
    )
    assert changed.state == "running"
    with pytest.raises(ConflictError):
        await store.update_session(
            record.id, expect_state=("starting",), state="lost", events=[told]
        )
    assert [event.kind for event in (await store.events()).records] == ["agent.started"]
    assert await store.count_sessions(("running",)) == 1


async def test_pages_have_the_newest_first(store: Store) -> None:
    records = [
        await store.insert_session(session(project=f"/p{number % 2}", created_at=float(number)))
        for number in range(5)
    ]
    await store.insert_session(session(owner="other"))
    seen, after = [], None
    while True:
        page = await store.find_sessions(OWNER, after=after, limit=2)
        seen += page.records
        if (after := page.next) is None:
            break
    assert seen == records[::-1]
    page = await store.find_sessions(OWNER, agent="claude", project="/p1")
    assert page.records == [records[3], records[1]]


async def test_a_session_outlives_its_sandbox(store: Store) -> None:
    box = sandbox()
    await store.insert_sandbox(box)
    record = await store.insert_session(session(sandbox_id=box.id))
    await store.remove_sandbox(box.id)
    assert (await store.find_sessions(sandbox_id=box.id)).records == [record]
    await store.remove_session(record.id)
    with pytest.raises(NotFoundError):
        await store.get_session(record.id)
