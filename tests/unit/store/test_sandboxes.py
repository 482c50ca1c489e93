"""Sandboxes: what goes in comes out, names, owners, compare-and-set, pages, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.store import Idempotency, NewEvent, SandboxRecord, Store

from .making import OWNER, Clock, all_pages, job, sandbox

FULL: dict[str, Any] = {
    "name": "web-1",
    "owner": "mcp:Some Client é",
    "state": "running",
    "blueprint": {"a": [1, 2.5, None, True, "é\0"], "b": {}},
    "env": {"PATH": "/bin", "EMPTY": ""},
    "labels": {"team": "a", "k": ""},
    "ephemeral": True,
    "created_at": 1_700_000_000.123456,
    "started_at": 1_700_000_001.5,
    "ttl_seconds": 3600.0,
    "idle_seconds": 0.5,
    "on_ttl": "remove",
    "on_idle": "remove",
    "expires_at": 1_700_003_601.5,
    "handle": {"pid": 17, "boot": "x"},
    "error": "why\nand where",
}


@pytest.mark.parametrize("fields", [{}, FULL], ids=["least", "full"])
async def test_a_record_comes_back_equal_also_after_a_restart(
    path: Path, fields: dict[str, Any]
) -> None:
    record = sandbox(**fields)
    async with await Store.open(path) as store:
        assert await store.insert_sandbox(record) == (record, True)
        assert await store.get_sandbox(record.id) == record
    async with await Store.open(path) as store:
        assert await store.all_sandboxes() == [record]


async def test_names_are_unique_for_an_owner(store: Store) -> None:
    first = sandbox("web")
    await store.insert_sandbox(first)
    with pytest.raises(ConflictError, match="web") as caught:
        await store.insert_sandbox(sandbox("web"))
    assert caught.value.hint
    await store.insert_sandbox(sandbox("web", owner="other"))
    other = sandbox("db")
    await store.insert_sandbox(other)
    with pytest.raises(ConflictError):
        await store.update_sandbox(other.id, name="web")
    await store.insert_sandbox(sandbox())
    await store.insert_sandbox(sandbox())
    await store.remove_sandbox(first.id)
    assert (await store.update_sandbox(other.id, name="web")).name == "web"


async def test_another_owners_sandbox_does_not_exist(store: Store) -> None:
    mine, theirs = sandbox("web"), sandbox("web", owner="other")
    await store.insert_sandbox(mine)
    await store.insert_sandbox(theirs)
    assert (await store.get_sandbox("web", OWNER)).id == mine.id
    assert (await store.get_sandbox("web", "other")).id == theirs.id
    assert (await store.get_sandbox(theirs.id)).id == theirs.id
    for name in (theirs.id, "nothing", new_id()):
        with pytest.raises(NotFoundError):
            await store.get_sandbox(name, OWNER)
    with pytest.raises(ConflictError, match="several owners"):
        await store.get_sandbox("web")
    assert await all_pages(store, OWNER, 10) == [mine.id]
    assert await all_pages(store, None, 10) == [mine.id, theirs.id]


async def test_an_update_compares_and_sets(store: Store, clock: Clock) -> None:
    record = sandbox()
    await store.insert_sandbox(record)
    updated = await store.update_sandbox(
        record.id,
        expect_state="creating",
        state="running",
        handle={"pid": 5},
        labels={"a": "b"},
        started_at=1001.0,
    )
    assert (updated.state, updated.handle, updated.started_at) == ("running", {"pid": 5}, 1001.0)
    assert (updated.updated_at, updated.created_at) == (clock.now, 1000.0)
    assert await store.get_sandbox(record.id) == updated
    with pytest.raises(ConflictError, match="is running, not creating or stopped") as caught:
        await store.update_sandbox(
            record.id, expect_state=("stopped", "creating"), state="removing"
        )
    assert caught.value.details == {"state": "running"}
    assert await store.get_sandbox(record.id) == updated
    with pytest.raises(NotFoundError):
        await store.update_sandbox(new_id(), state="stopped")
    cleared = await store.update_sandbox(record.id, handle=None)
    assert cleared.handle is None
    clock.now = 5.0
    assert (await store.update_sandbox(record.id)).updated_at == updated.updated_at


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "short"},
        {"name": "Not-Lower"},
        {"owner": ""},
        {"owner": "a\nb"},
        {"owner": "\udc80"},
        {"backend": ""},
        {"state": "gone"},
        {"on_ttl": "explode"},
        {"created_at": float("nan")},
        {"created_at": -1.0},
        {"expires_at": float("inf")},
        {"env": {"a": 1}},
        {"env": {"a": "\udc80"}},
        {"labels": {"": "x"}},
        {"labels": {str(n): "" for n in range(129)}},
        {"blueprint": []},
        {"blueprint": {"a": float("nan")}},
        {"blueprint": {1: 2}},
        {"blueprint": {"a": b"bytes"}},
        {"blueprint": {"a": object()}},
        {"blueprint": {"a": "x" * (1 << 20)}},
        {"handle": {"a": {1, 2}}},
        {"error": "\udc80"},
        {"error": 5},
    ],
)
async def test_what_can_not_be_stored_is_refused(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await store.insert_sandbox(sandbox(**fields))
    assert await store.all_sandboxes() == []
    if fields.keys() <= {"id", "owner", "backend", "created_at"}:
        return
    record = sandbox()
    await store.insert_sandbox(record)
    with pytest.raises(InvalidInputError):
        await store.update_sandbox(record.id, **fields)
    assert await store.all_sandboxes() == [record]


async def test_only_what_may_change_changes(store: Store) -> None:
    record = sandbox()
    await store.insert_sandbox(record)
    for fields in ({"owner": "other"}, {"updated_at": 5.0}, {"created_at": 5.0}, {"nothing": 1}):
        with pytest.raises(InvalidInputError, match="can't be changed"):
            await store.update_sandbox(record.id, **fields)


async def test_tuples_become_lists(store: Store) -> None:
    inserted = await store.insert_sandbox(sandbox(blueprint={"a": ({"b": (1,)},)}))
    assert inserted.record.blueprint == {"a": [{"b": [1]}]}
    assert await store.get_sandbox(inserted.record.id) == inserted.record


async def test_removal_takes_jobs_and_labels_and_keeps_events(store: Store) -> None:
    record = sandbox("web", labels={"a": "b"})
    await store.insert_sandbox(record, events=[NewEvent(kind="made", sandbox_id=record.id)])
    work = await store.insert_job(job(record.id))
    gone = NewEvent(kind="gone", sandbox_id=record.id)
    with pytest.raises(ConflictError):
        await store.remove_sandbox(record.id, expect_state="removing", events=[gone])
    assert await store.remove_sandbox(record.id, events=[gone]) == record
    with pytest.raises(NotFoundError):
        await store.remove_sandbox(record.id)
    with pytest.raises(NotFoundError):
        await store.get_job(work.id)
    assert await all_pages(store, None, 10, labels={"a": "b"}) == []
    page = await store.events(sandbox_id=record.id)
    assert [(event.kind, event.owner) for event in page.records] == [
        ("made", OWNER),
        ("gone", OWNER),
    ]
    await store.insert_sandbox(sandbox("web"))


async def test_events_go_with_the_change_or_not_at_all(store: Store) -> None:
    record = sandbox("web")
    made = NewEvent(kind="made", sandbox_id=record.id)
    await store.insert_sandbox(record, events=[made])
    with pytest.raises(ConflictError):
        await store.insert_sandbox(sandbox("web"), events=[made])
    with pytest.raises(ConflictError):
        await store.update_sandbox(record.id, expect_state="error", events=[made])
    await store.update_sandbox(record.id, state="running", events=[NewEvent(kind="runs")])
    kinds = [event.kind for event in (await store.events()).records]
    assert kinds == ["made", "runs"]


async def test_labels_and_states_filter(store: Store) -> None:
    records: list[SandboxRecord] = []
    for number in range(12):
        record = sandbox(
            labels={"even": str(number % 2 == 0), "third": str(number % 3 == 0)},
            state="running" if number < 6 else "stopped",
        )
        records.append(record)
        await store.insert_sandbox(record)

    async def numbers(**filters: Any) -> list[int]:
        found = await all_pages(store, OWNER, 2, **filters)
        ids = [record.id for record in records]
        return [ids.index(id) for id in found]

    assert await numbers() == list(range(12))
    assert await numbers(newest_first=True) == list(range(11, -1, -1))
    assert await numbers(labels={"even": "True"}) == [0, 2, 4, 6, 8, 10]
    assert await numbers(labels={"even": "True", "third": "True"}) == [0, 6]
    assert await numbers(labels={"even": "True", "third": "True"}, states=["stopped"]) == [6]
    assert await numbers(labels={"third": "True"}, newest_first=True) == [9, 6, 3, 0]
    assert await numbers(states="stopped") == list(range(6, 12))
    assert await numbers(labels={"even": "maybe"}) == []
    assert await numbers(labels={"nothing": "True"}) == []
    await store.update_sandbox(records[0].id, labels={"third": "True"})
    assert await numbers(labels={"even": "True", "third": "True"}) == [6]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_pages_hold_while_rows_come_and_go(store: Store, newest_first: bool) -> None:
    records = [sandbox() for _ in range(30)]
    for record in records:
        await store.insert_sandbox(record)
    ids = [record.id for record in records]
    seen: list[str] = []
    removed: set[str] = set()
    added: list[str] = []
    after: int | None = None
    while True:
        page = await store.find_sandboxes(OWNER, after=after, limit=7, newest_first=newest_first)
        seen += [record.id for record in page.records]
        if page.next is None:
            break
        after = page.next
        # The row that the cursor stands on, one that was seen, one that was not.
        rest = [id for id in ids if id not in seen and id not in removed]
        for id in (seen[-1], seen[0], *rest[:1]):
            if id not in removed:
                removed.add(id)
                await store.remove_sandbox(id)
        if len(added) < 3:
            late = sandbox(created_at=1.0)
            added.append(late.id)
            await store.insert_sandbox(late)
    assert len(seen) == len(set(seen))
    assert set(ids) - removed <= set(seen)
    if newest_first:
        assert not set(added) & set(seen)
    else:
        assert seen[-3:] == added


async def test_a_page_number_is_not_used_twice(store: Store) -> None:
    first, last = sandbox(), sandbox()
    await store.insert_sandbox(first)
    await store.insert_sandbox(last)
    page = await store.find_sandboxes(OWNER, limit=1)
    await store.remove_sandbox(last.id)
    await store.remove_sandbox(first.id)
    late = sandbox()
    await store.insert_sandbox(late)
    page = await store.find_sandboxes(OWNER, after=page.next)
    assert [record.id for record in page.records] == [late.id]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_pages_have_bounds(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        await store.find_sandboxes(OWNER, limit=limit)


async def test_words_that_sqlite_can_not_take_are_refused(store: Store) -> None:
    with pytest.raises(InvalidInputError):
        await store.get_sandbox("\udc80")
    with pytest.raises(InvalidInputError):
        await store.find_sandboxes(OWNER, after=1 << 70)
    with pytest.raises(NotFoundError):
        await store.get_sandbox("a\0b")


async def test_a_key_makes_a_create_repeatable(store: Store, clock: Clock) -> None:
    key = Idempotency(key="k", fingerprint="f")
    first = sandbox("web")
    made = [NewEvent(kind="made", sandbox_id=first.id)]
    assert await store.insert_sandbox(first, key, events=made) == (first, True)
    running = await store.update_sandbox(first.id, state="running")
    again = await store.insert_sandbox(sandbox("web"), key, events=made)
    assert again == (running, False)
    assert len((await store.events()).records) == 1
    with pytest.raises(ConflictError, match="another request"):
        await store.insert_sandbox(sandbox(), Idempotency(key="k", fingerprint="g"))
    others = sandbox("web", owner="other")
    assert await store.insert_sandbox(others, key) == (others, True)

    clock.now += 24 * 3600 - 1
    assert not (await store.insert_sandbox(sandbox("web"), key)).created
    clock.now += 1
    late = sandbox()
    assert await store.insert_sandbox(late, key) == (late, True)


async def test_a_key_is_kept_only_with_its_sandbox(store: Store) -> None:
    key = Idempotency(key="k", fingerprint="f")
    first = sandbox("web")
    await store.insert_sandbox(first, key)
    with pytest.raises(ConflictError):
        await store.insert_sandbox(sandbox("web"), Idempotency(key="l", fingerprint="f"))
    await store.remove_sandbox(first.id)
    second = sandbox("web")
    assert await store.insert_sandbox(second, key) == (second, True)
    third = sandbox("db")
    # The key of the create that was refused was not kept either.
    assert (await store.insert_sandbox(third, Idempotency(key="l", fingerprint="x"))).created
