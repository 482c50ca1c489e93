"""Jobs end once, and go with their sandbox, or when there are too many that are over."""

from __future__ import annotations

import pytest

from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.store import SandboxRecord, Store, jobs

from .making import Clock, job, sandbox
from .test_sessions import session


@pytest.fixture
async def box(store: Store) -> SandboxRecord:
    return (await store.insert_sandbox(sandbox())).record


async def test_a_job_comes_back_and_ends_once(store: Store, box: SandboxRecord) -> None:
    record = job(box.id, options={"cwd": "/", "env": {"A": "b"}})
    assert await store.insert_job(record) == record
    assert await store.get_job(record.id) == record
    status = {"outcome": "exited", "exit_code": 3}
    ended = await store.update_job(
        record.id, expect_state="running", state="ended", status=status, ended_at=1001.0
    )
    assert (ended.state, ended.status, ended.ended_at) == ("ended", status, 1001.0)
    assert await store.get_job(record.id) == ended == await store.update_job(record.id)
    with pytest.raises(ConflictError, match="is ended, not running"):
        await store.update_job(record.id, expect_state="running", state="lost")
    assert await store.mark_jobs_lost(box.id) == []


async def test_lost_jobs_are_those_that_ran(store: Store, box: SandboxRecord, clock: Clock) -> None:
    records = [job(box.id, state="ended" if n == 1 else "running") for n in range(3)]
    for record in records:
        await store.insert_job(record)
    elsewhere = await store.insert_sandbox(sandbox())
    other = await store.insert_job(job(elsewhere.record.id))
    lost = await store.mark_jobs_lost(box.id)
    assert [(one.id, one.state, one.status, one.ended_at) for one in lost] == [
        (record.id, "lost", None, clock.now) for record in (records[0], records[2])
    ]
    assert [one.id for one in await store.jobs_of(box.id)] == [one.id for one in records]
    assert await store.jobs_of(box.id, states=["ended"]) == [records[1]]
    assert await store.jobs_of(elsewhere.record.id, states="running") == [other]
    assert await store.jobs_of(new_id()) == []


async def test_the_oldest_that_are_over_make_room(
    store: Store, box: SandboxRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_OVER", 3)
    runs = await store.insert_job(job(box.id))
    agents = await store.insert_job(job(box.id, state="ended"))
    await store.insert_session(session(sandbox_id=box.id, job_id=agents.id))
    over = [
        await store.insert_job(job(box.id, state="lost" if n % 2 else "ended")) for n in range(6)
    ]
    elsewhere = (await store.insert_sandbox(sandbox())).record
    other = await store.insert_job(job(elsewhere.id, state="ended"))
    kept = [one.id for one in await store.jobs_of(box.id)]
    assert kept == [runs.id, agents.id, *(one.id for one in over[-3:])]
    assert await store.jobs_of(elsewhere.id) == [other]


async def test_a_page_of_all_jobs(store: Store) -> None:
    boxes = [(await store.insert_sandbox(sandbox(owner=owner))).record for owner in ("a", "b", "a")]
    made = [await store.insert_job(job(boxes[place].id)) for place in (0, 1, 2, 0)]
    mine = [made[0], made[2], made[3]]
    assert (await store.find_jobs("a")).records == mine
    assert (await store.find_jobs()).records == made
    first = await store.find_jobs("a", limit=2)
    assert first.records == mine[:2] and first.next is not None
    assert await store.find_jobs("a", limit=2, after=first.next) == (mine[2:], None)
    assert (await store.find_jobs("a", sandbox_id=boxes[0].id)).records == [made[0], made[3]]
    assert (await store.find_jobs("b", sandbox_id=boxes[0].id)).records == []
    await store.update_job(made[0].id, state="lost")
    assert [one.id for one in (await store.find_jobs("a", states=["lost"])).records] == [made[0].id]
    with pytest.raises(InvalidInputError):
        await store.find_jobs(limit=0)


async def test_what_can_not_be_is_refused(store: Store, box: SandboxRecord) -> None:
    with pytest.raises(NotFoundError, match="no sandbox"):
        await store.insert_job(job(new_id()))
    with pytest.raises(NotFoundError, match="no job"):
        await store.get_job(new_id())
    with pytest.raises(NotFoundError):
        await store.update_job(new_id(), state="lost")
    with pytest.raises(InvalidInputError):
        await store.insert_job(job(box.id, argv=[]))
    with pytest.raises(InvalidInputError):
        await store.insert_job(job(box.id, argv=["a", 1]))
    record = await store.insert_job(job(box.id))
    with pytest.raises(ConflictError):
        await store.insert_job(record)
    with pytest.raises(InvalidInputError):
        await store.update_job(record.id, state="gone")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="can't be changed"):
        await store.update_job(record.id, argv=["b"])  # type: ignore[call-arg]
    assert await store.jobs_of(box.id) == [record]
