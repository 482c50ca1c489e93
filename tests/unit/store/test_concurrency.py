"""Many callers, one writer: together fast, each for itself right."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError, ConflictError, StateError
from agentkernel.kernel.store import NewEvent, Store, schema
from agentkernel.kernel.store.writer import Transaction

from .making import OWNER, execute, job, numbered, sandbox


def state_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("agentkernel-state")]


async def test_200_writers_share_transactions(store: Store) -> None:
    async def life(number: int) -> None:
        record = sandbox(f"n{number}")
        await store.insert_sandbox(record)
        work = await store.insert_job(job(record.id))
        await store.append_events([NewEvent(kind="a", sandbox_id=record.id, body={"n": number})])
        await store.update_sandbox(record.id, expect_state="creating", state="running")
        await store.update_job(work.id, expect_state="running", state="ended")
        assert (await store.get_sandbox(f"n{number}", OWNER)).state == "running"

    await asyncio.gather(*(life(number) for number in range(200)))
    statistics = await store.statistics()
    assert statistics.sandboxes == {"running": 200}
    assert statistics.jobs == {"ended": 200}
    assert statistics.events == statistics.newest_event == 200
    assert statistics.writes == 1000
    assert statistics.transactions < 500


async def test_one_of_many_wins_and_nobody_else_suffers(store: Store) -> None:
    racers = [sandbox(f"n{number % 20}") for number in range(200)]
    bystanders = [sandbox() for _ in range(200)]
    pairs = zip(racers, bystanders, strict=True)
    calls = [store.insert_sandbox(one) for pair in pairs for one in pair]
    results = await asyncio.gather(*calls, return_exceptions=True)
    lost = [result for result in results if isinstance(result, BaseException)]
    assert len(lost) == 180
    assert all(isinstance(error, ConflictError) for error in lost)
    there = {record.id for record in await store.all_sandboxes()}
    assert {one.id for one in bystanders} <= there
    assert len(there) == 220


async def test_compare_and_set_has_one_winner(store: Store) -> None:
    record = sandbox()
    await store.insert_sandbox(record)
    calls = [
        store.update_sandbox(record.id, expect_state="creating", state="running", error=str(n))
        for n in range(100)
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    assert [await store.get_sandbox(record.id)] == won


async def test_work_that_fails_halfway_is_undone_alone(store: Store) -> None:
    def halfway(transaction: Transaction) -> None:
        transaction.connection.execute("DELETE FROM sandboxes")
        transaction.newest_event = 99
        raise ZeroDivisionError

    def wrong(transaction: Transaction) -> None:
        transaction.connection.execute("INSERT INTO nowhere VALUES (1)")

    boxes = [sandbox() for _ in range(20)]
    results = await asyncio.gather(
        *(store.insert_sandbox(one) for one in boxes[:10]),
        store._write(halfway),
        store._write(wrong),
        *(store.insert_sandbox(one) for one in boxes[10:]),
        return_exceptions=True,
    )
    assert isinstance(results[10], ZeroDivisionError)
    assert type(results[11]) is AgentKernelError
    assert await store.all_sandboxes() == boxes
    assert await store.append_events(numbered(1)) == [1]


async def test_a_cancelled_write_is_carried_out(store: Store) -> None:
    record = sandbox()
    task = asyncio.create_task(store.insert_sandbox(record))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.append_events([])
    assert await store.all_sandboxes() == [record]


async def test_close_writes_what_is_queued_and_ends_the_threads(path: Path) -> None:
    store = await Store.open(path)
    assert len(state_threads()) == 2
    calls = [asyncio.ensure_future(store.insert_sandbox(sandbox())) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert all(not isinstance(done, BaseException) for done in await asyncio.gather(*calls))
    assert state_threads() == []
    for call in (store.insert_sandbox(sandbox()), store.all_sandboxes()):
        with pytest.raises(StateError, match="closed"):
            await call
    await store.close()
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name]
    async with await Store.open(path) as store:
        assert len(await store.all_sandboxes()) == 50


async def test_an_open_that_fails_leaves_nothing(path: Path) -> None:
    execute(path, "CREATE TABLE not_ours (x)")
    with pytest.raises(StateError):
        await Store.open(path)
    assert state_threads() == []
    gc.collect()  # a connection that was left open would warn


async def test_a_cancelled_open_leaves_nothing(path: Path) -> None:
    task = asyncio.create_task(Store.open(path))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state_threads() == []


async def test_a_database_that_somebody_holds_is_said_and_passes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.01)
    async with await Store.open(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            with pytest.raises(StateError, match="locked") as caught:
                await store.insert_sandbox(sandbox())
            assert caught.value.retryable
            assert await store.all_sandboxes() == []
            shell.execute("ROLLBACK")
        await store.insert_sandbox(sandbox())


def test_importing_the_package_does_not_load_sqlite() -> None:
    script = "import sys, agentkernel; assert 'sqlite3' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)
