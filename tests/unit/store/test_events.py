"""Events: numbered once, kept in bounds, gaps told, readers woken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import InvalidInputError, StateError
from agentkernel.ids import new_id
from agentkernel.kernel.store import NewEvent, Store, events
from agentkernel.kernel.store import store as store_module

from .making import OWNER, Clock, numbered, sandbox


@pytest.mark.parametrize("count", [0, 1, 7, 8, 64, 65, 200])
async def test_seqs_follow_one_another(store: Store, clock: Clock, count: int) -> None:
    await store.append_events([NewEvent(kind="first", at=5.25)])
    seqs = await store.append_events(numbered(count))
    assert seqs == list(range(2, count + 2))
    page = await store.events(1, limit=1000)
    assert [(event.seq, event.body["n"]) for event in page.records] == [
        (n + 2, n) for n in range(count)
    ]
    assert {event.at for event in page.records} <= {clock.now}
    assert (await store.events()).records[0].at == 5.25


async def test_seqs_are_never_used_twice(path: Path) -> None:
    async with await Store.open(path, max_events=0) as store:
        assert await store.append_events(numbered(3)) == [1, 2, 3]
        await store.append_events([])  # served after the pruning
        assert (await store.statistics()).events == 0
    async with await Store.open(path) as store:
        assert (await store.events()).records == []
        assert await store.append_events(numbered(1)) == [4]


async def test_pages_filter_and_say_where_to_go_on(store: Store) -> None:
    box = (await store.insert_sandbox(sandbox())).record
    for n in range(20):
        await store.append_events(
            [
                NewEvent(kind="a" if n % 2 else "b.c", sandbox_id=box.id if n < 10 else None),
                NewEvent(kind="other", owner="other"),
            ]
        )
    page = await store.events(limit=15)
    assert (len(page.records), page.next, page.newest, page.gap) == (15, 15, 40, False)
    mine = await store.events(sandbox_id=box.id, kinds=["a"], limit=4)
    assert [event.seq for event in mine.records] == [3, 7, 11, 15]
    assert {event.owner for event in mine.records} == {OWNER}
    mine = await store.events(mine.next, sandbox_id=box.id, kinds=["a"], limit=4)
    assert [event.seq for event in mine.records] == [19]
    assert mine.next == 40
    theirs = await store.events(owner="other", limit=1000)
    assert {event.kind for event in theirs.records} == {"other"}
    assert len(theirs.records) == 20


async def test_the_number_of_events_is_bounded_and_the_gap_told(path: Path) -> None:
    async with await Store.open(path, max_events=100) as store:
        for _ in range(50):
            await store.append_events(numbered(50))
            await store.append_events([])
            assert (await store.statistics()).events <= 110
        page = await store.events(0)
        assert page.gap
        assert page.oldest == page.records[0].seq == 2500 - (await store.statistics()).events + 1
        assert (await store.events(page.oldest - 2)).gap
        assert not (await store.events(page.oldest - 1)).gap
        assert not (await store.events(2500)).gap
    async with await Store.open(path, max_events=100) as store:
        again = await store.events(0)
        assert (again.gap, again.oldest, again.newest) == (True, page.oldest, 2500)


async def test_events_from_a_future_that_is_not_ours_are_a_gap(store: Store) -> None:
    await store.append_events(numbered(3))
    page = await store.events(10)
    assert (page.gap, page.next, page.records) == (True, 3, [])
    assert await store.wait_for_events(10) == 3


async def test_old_events_go(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PRUNE_ROWS", 10)
    async with await Store.open(path, clock=clock, max_event_age=1000.0) as store:
        await store.append_events(numbered(35))
        clock.now += 900
        await store.append_events(numbered(5))
        clock.now += 101
        await store.append_events([])
        await store.append_events([])
        page = await store.events(0)
        assert (len(page.records), page.oldest, page.gap) == (5, 36, True)


async def test_a_waiting_reader_wakes_on_commit(store: Store) -> None:
    waiters = [asyncio.create_task(store.wait_for_events(0)) for _ in range(50)]
    await store.insert_sandbox(sandbox())
    assert not any(waiter.done() for waiter in waiters)
    await store.append_events(numbered(3))
    assert await asyncio.gather(*waiters) == [3] * 50
    assert await store.wait_for_events(1) == 3
    assert len((await store.events(0)).records) == 3


async def test_closing_wakes_who_waits(path: Path) -> None:
    store = await Store.open(path)
    waiter = asyncio.create_task(store.wait_for_events(0))
    await store.append_events([])
    await store.close()
    with pytest.raises(StateError, match="closed"):
        await waiter


async def test_posts_keep_their_place_and_are_written_at_close(path: Path) -> None:
    async with await Store.open(path) as store:
        before = (await store.statistics()).transactions
        for event in numbered(100):
            store.post_events([event])
        await store.append_events([NewEvent(kind="awaited")])
        statistics = await store.statistics()
        assert statistics.events == 101
        assert statistics.transactions - before <= 2
        assert (await store.events(100)).records[0].kind == "awaited"
        store.post_events([NewEvent(kind="last")])
    with pytest.raises(StateError, match="closed"):
        store.post_events([NewEvent(kind="late")])
    async with await Store.open(path) as store:
        assert (await store.events(101)).records[0].kind == "last"


async def test_too_many_posts_are_counted_and_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_POSTED", 10)
    store.post_events(numbered(8))
    store.post_events(numbered(3))
    store.post_events(numbered(2))
    await store.append_events([NewEvent(kind="next")])
    records = (await store.events()).records
    gaps = [event for event in records if event.kind == "state.gap"]
    assert [gap.body["events"] for gap in gaps] == [3]
    assert sum(event.kind == "test.number" for event in records) == 10
    assert (await store.statistics()).dropped_events == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ""},
        {"kind": "With Space"},
        {"kind": "a" * 65},
        {"kind": "a", "sandbox_id": "x"},
        {"kind": "a", "at": float("nan")},
        {"kind": "a", "body": {"x": float("inf")}},
        {"kind": "a", "body": {1: 2}},
    ],
)
async def test_what_is_no_event_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await store.append_events([NewEvent(kind="good"), NewEvent(**fields)])
    with pytest.raises(InvalidInputError):
        store.post_events([NewEvent(**fields)])
    assert (await store.events()).records == []


async def test_an_event_may_speak_of_a_sandbox_that_is_not_there(store: Store) -> None:
    await store.append_events([NewEvent(kind="a", sandbox_id=new_id())])
    assert (await store.events()).records[0].owner is None
