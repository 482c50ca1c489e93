"""Programs that the tests of the store run as processes of their own: `children.py NAME PATH`."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys
from pathlib import Path

from agentkernel.errors import AgentKernelError, ResourceExhaustedError, StateError
from agentkernel.ids import new_id
from agentkernel.kernel.store import JobRecord, NewEvent, SandboxRecord, Store

BODY = {"text": "x" * 2000}


def record(name: str | None = None) -> SandboxRecord:
    return SandboxRecord(
        id=new_id(),
        name=name,
        owner="uid:1000",
        backend="native",
        blueprint={"image": "host"},
        created_at=1.0,
        updated_at=1.0,
    )


def say(*words: object) -> None:
    """One write a line: what is read was said whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write_for_ever(path: Path) -> None:
    """Says what was acknowledged, never what was only asked for."""
    store = await Store.open(path)

    async def writer() -> None:
        for number in itertools.count(1):
            box = record()
            await store.insert_sandbox(box)
            say("sandbox", box.id)
            job = JobRecord(id=new_id(), sandbox_id=box.id, argv=["a"], created_at=1.0)
            await store.insert_job(job)
            say("job", job.id)
            seqs = await store.append_events([NewEvent(kind="a", sandbox_id=box.id)] * 3)
            say("event", seqs[-1], box.id)
            await store.update_sandbox(box.id, ttl_seconds=float(number))
            say("update", box.id, number)

    await asyncio.gather(*(writer() for _ in range(4)))


async def fill_up(store: Store) -> int:
    """Appends until the disk is full; how many were acknowledged."""
    for count in range(10_000):
        try:
            await store.append_events([NewEvent(kind="fill", body=BODY)])
        except ResourceExhaustedError as exc:
            assert exc.hint
            return count
    raise AssertionError("the disk did not fill up")


async def full_disk(folder: Path) -> None:
    """`folder` is a file system of 2 MiB of its own."""
    path = folder / "state.db"
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - 20_000))
    try:
        await Store.open(path)
    except ResourceExhaustedError:
        pass
    else:
        raise AssertionError("there was room for a database")
    ballast.write_bytes(bytes(1 << 20))

    store = await Store.open(path)
    kept = record("kept")
    await store.insert_sandbox(kept)
    count = await fill_up(store)
    store.post_events([NewEvent(kind="posted", body=BODY)] * 40)
    large = (record() for _ in range(20))
    results = await asyncio.gather(
        *(store.insert_sandbox(one, events=[NewEvent(kind="x", body=BODY)] * 40) for one in large),
        return_exceptions=True,
    )
    assert all(isinstance(result, ResourceExhaustedError) for result in results), results
    assert await store.all_sandboxes() == [kept]

    ballast.unlink()
    await store.append_events([NewEvent(kind="again")])
    after = record("after")
    await store.insert_sandbox(after)
    await check(store, count, [kept, after])
    statistics = await store.statistics()
    assert statistics.dropped_events == 40
    await store.close()
    store = await Store.open(path)
    await check(store, count, [kept, after])
    await store.close()


async def check(store: Store, count: int, boxes: list[SandboxRecord]) -> None:
    assert await store.all_sandboxes() == boxes
    page = await store.events(limit=1000)
    kinds = [event.kind for event in page.records]
    assert kinds == ["fill"] * count + ["state.gap", "again"], kinds[count:]
    assert page.records[count].body == {"reason": "not written", "events": 40}
    assert page.next == page.newest == count + 2


async def limited_file(folder: Path) -> None:
    """What is no full disk but stops writing all the same."""
    path = folder / "state.db"
    store = await Store.open(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    count = 0
    error: AgentKernelError | None = None
    while error is None and count < 10_000:
        try:
            await store.append_events([NewEvent(kind="fill", body=BODY)])
            count += 1
        except AgentKernelError as exc:
            error = exc
    assert type(error) is StateError, error
    assert error.hint
    assert count
    assert len((await store.events(limit=1000)).records) == count
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert await store.append_events([NewEvent(kind="again")]) == [count + 1]
    await store.close()
    store = await Store.open(path)
    assert len((await store.events(limit=1000)).records) == count + 1
    await store.close()


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
