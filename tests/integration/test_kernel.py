"""The kernel: life of a sandbox, jobs, clocks, and everything again after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import (
    ConflictError,
    HostError,
    NotFoundError,
    ResourceExhaustedError,
    StateLockedError,
)
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import Idempotency, SandboxRecord

KEPT = SandboxSpec(ephemeral=False)
DEADLINE_S = 30.0


async def text(kernel: Kernel, id: str, script: str) -> str:
    result = await kernel.run(id, ["sh", "-c", script])
    assert result.status.exit_code == 0, result
    return result.stdout.decode()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


async def test_life(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        spec = SandboxSpec(ephemeral=False, env={"A": "1"})
        record = await kernel.create(spec, name="work", labels={"team": "x"})
        assert record.state == "running"
        assert await text(kernel, "work", "echo $A > /root/f; cat /root/f") == "1\n"
        with pytest.raises(ConflictError):
            await kernel.create(KEPT, name="work")

        assert (await kernel.stop("work")).state == "stopped"
        with pytest.raises(ConflictError, match="not running"):
            await kernel.run("work", ["true"])
        assert (await kernel.start("work")).state == "running"
        assert await text(kernel, record.id, "cat /root/f") == "1\n"
        page = await kernel.list(labels={"team": "x"})
        assert [found.id for found in page.records] == [record.id]
        await kernel.remove("work")
        with pytest.raises(NotFoundError):
            await kernel.get("work")
        kinds = [event.kind for event in (await kernel.events(sandbox_id=record.id)).records]
    assert kinds == [
        "sandbox.created", "sandbox.stopped", "sandbox.started", "sandbox.removed",
    ]  # fmt: skip
    assert os.listdir(own_state / "sandboxes") == []


async def test_one_owner_of_a_state(own_state: Path) -> None:
    async with Kernel(own_state):
        with pytest.raises(StateLockedError):
            await Kernel(own_state).__aenter__()


async def test_twenty_at_once(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        spec = SandboxSpec()
        records = await asyncio.gather(*(kernel.create(spec) for _ in range(20)))
        outputs = await asyncio.gather(*(text(kernel, r.id, "hostname") for r in records))
        assert outputs == ["sandbox\n"] * 20
        await asyncio.gather(*(kernel.remove(record.id) for record in records))
    assert os.listdir(own_state / "sandboxes") == []


async def test_admission(own_state: Path) -> None:
    async with Kernel(own_state, admission=Admission(max_sandboxes=1)) as kernel:
        record = await kernel.create(SandboxSpec())
        with pytest.raises(ResourceExhaustedError, match="most there may be"):
            await kernel.create(SandboxSpec())
        await kernel.remove(record.id)
    async with Kernel(own_state, admission=Admission(memory_floor_bytes=1 << 50)) as kernel:
        with pytest.raises(ResourceExhaustedError, match="must stay free"):
            await kernel.create(SandboxSpec())


async def test_time_to_live_and_idleness(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        stops = await kernel.create(KEPT, ttl_seconds=0.3)
        goes = await kernel.create(SandboxSpec(), ttl_seconds=0.3)
        idle = await kernel.create(KEPT, idle_seconds=0.3)
        busy = await kernel.create(KEPT, idle_seconds=0.3)
        job = await kernel.jobs.start(busy.id, ["sleep", "1000"])

        async def ended() -> bool:
            records = {r.id: r.state for r in (await kernel.list()).records}
            stopped = {id for id, state in records.items() if state == "stopped"}
            return stopped == {stops.id, idle.id} and goes.id not in records

        await until(ended)
        assert (await kernel.get(busy.id)).state == "running"
        await kernel.jobs.kill(job.id)

        async def stopped() -> bool:
            return (await kernel.get(busy.id)).state == "stopped"

        await until(stopped)
        events = (await kernel.events(kinds=("sandbox.expiring",))).records
        assert {event.body["clock"] for event in events} == {"ttl", "idle"}
        extended = await kernel.extend(stops.id, 500)
        assert extended.expires_at and extended.expires_at > time.time() + 400
        for record in (stops, idle, busy):
            await kernel.remove(record.id)


async def test_jobs_outlive_the_kernel(own_state: Path) -> None:
    script = "for i in $(seq 200); do echo out $i; echo err $i >&2; sleep 0.005; done; exit 7"
    async with Kernel(own_state) as kernel:
        record = await kernel.create(KEPT, name="work")
        job = await kernel.jobs.start("work", ["sh", "-c", script])
        waiting = await kernel.jobs.start("work", ["sh", "-c", "read line; echo got $line"],
                                          ProcessOptions(stdin=True))  # fmt: skip
    kept = {Channel.STDOUT: b"", Channel.STDERR: b""}
    for _ in range(30):  # as many kernels, each sees a little
        async with (
            Kernel(own_state) as kernel,
            kernel.jobs.attach(
                job.id,
                stdout_offset=len(kept[Channel.STDOUT]),
                stderr_offset=len(kept[Channel.STDERR]),
            ) as process,
        ):
            for _ in range(random.randint(1, 40)):
                if (part := await process.output()) is None:
                    break
                assert part.offset == len(kept[part.channel])
                kept[part.channel] += part.data
            if process.status:
                break
    async with Kernel(own_state) as kernel:
        async with kernel.jobs.attach(
            job.id,
            stdout_offset=len(kept[Channel.STDOUT]),
            stderr_offset=len(kept[Channel.STDERR]),
        ) as process:
            while (part := await process.output()) is not None:
                kept[part.channel] += part.data
        assert process.status and process.status.exit_code == 7
        for channel, word in ((Channel.STDOUT, "out"), (Channel.STDERR, "err")):
            assert kept[channel].decode() == "".join(f"{word} {i}\n" for i in range(1, 201))

        async with kernel.jobs.attach(waiting.id) as process:
            await process.write(b"me\n")
            part = await process.output()
            assert part and part.data == b"got me\n"
            assert await process.output() is None
        await _fill_and_attach_again(kernel)
        states = {found.id: found.state for found in await kernel.jobs.list("work")}
        states = {id: state for id, state in states.items() if id in (job.id, waiting.id)}
        assert states == {job.id: "ended", waiting.id: "ended"}
        await kernel.stop(record.id)
        assert (await kernel.jobs.get(job.id)).state == "ended"
        await kernel.remove(record.id)


async def _fill_and_attach_again(kernel: Kernel) -> None:
    """A job that does not read: whoever attaches next may send only what there is room for."""
    job = await kernel.jobs.start("work", ["sleep", "1000"], ProcessOptions(stdin=True))
    for _ in range(2):
        async with kernel.jobs.attach(job.id) as process:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await process.write(bytes(1 << 20))
    assert await text(kernel, "work", "echo still here") == "still here\n"
    await kernel.jobs.kill(job.id)


async def test_a_job_that_ended_unwatched(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        record = await kernel.create(KEPT)
        job = await kernel.jobs.start(record.id, ["sh", "-c", "sleep 0.2; exit 3"])
        lost = await kernel.jobs.start(record.id, ["sleep", "1000"])
        missing = await kernel.jobs.start(record.id, ["no-such-program"])
        assert (missing.state, missing.status and missing.status["outcome"]) == (
            "ended", Outcome.NOT_STARTED,
        )  # fmt: skip
    await asyncio.sleep(0.4)
    async with Kernel(own_state) as kernel:
        found = await kernel.jobs.get(job.id)
        assert found.state == "ended" and found.status and found.status["exit_code"] == 3
        await kernel.stop(record.id, grace_seconds=0)
        assert (await kernel.jobs.get(lost.id)).state == "lost"
        await kernel.remove(record.id)


KILLED = """
import asyncio, sys
from pathlib import Path
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

async def main() -> None:
    async with Kernel(Path(sys.argv[1])) as kernel:
        while True:
            disk = int(sys.argv[2]) or None
            spec = SandboxSpec(ephemeral=False, disk_bytes=disk, best_effort=True)
            record = await kernel.create(spec)
            print("made", record.id, flush=True)
            await kernel.run(record.id, ["sh", "-c", "echo kept > /root/f; sync"])
            print("wrote", record.id, flush=True)
            if len((await kernel.list()).records) > 3:
                victim = (await kernel.list()).records[0]
                print("removing", victim.id, flush=True)
                await kernel.remove(victim.id)
                print("removed", victim.id, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("disk", [0, 32 << 20])
async def test_kill_at_any_moment(own_state: Path, disk: int) -> None:
    """What was acknowledged is there, what was not is not, and nothing else is.

    With a disk of its own (where that can be had) a sandbox has a loop device, too.
    """
    said: dict[str, set[str]] = {v: set() for v in ("made", "wrote", "removing", "removed")}
    for _ in range(8):
        with subprocess.Popen(  # noqa: ASYNC220 (the test has nothing else to do)
            [sys.executable, "-c", KILLED, str(own_state), str(disk)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(random.randint(1, 9))]
            await asyncio.sleep(random.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        assert lines[0], "it ended by itself"
        for verb, id in (line.split() for line in lines if line.endswith("\n")):
            said[verb].add(id)
    made, wrote, gone = said["made"], said["wrote"], said["removing"] | said["removed"]
    async with Kernel(own_state) as kernel:
        records = (await kernel.list(limit=1000)).records
        ids = {record.id for record in records}
        assert made - gone <= ids
        assert all(record.state == "running" for record in records)
        for id in (wrote & ids) - gone:
            assert await text(kernel, id, "cat /root/f") == "kept\n"
        assert set(os.listdir(own_state / "sandboxes")) == ids
        for record in records:
            await kernel.remove(record.id)
    assert os.listdir(own_state / "sandboxes") == []
    async with asyncio.timeout(20):
        while loop_devices(own_state):  # noqa: ASYNC110 (the kernel's own work)
            await asyncio.sleep(0.01)


def loop_devices(state: Path) -> list[str]:
    """What the machine's loop devices have of a state directory."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found.append(path.read_text().strip())
    return [file for file in found if str(state) in file]


async def test_who_waits_for_a_create_gets_its_error(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Kernel(own_state) as kernel:
        begun, go = asyncio.Event(), asyncio.Event()

        async def create(*arguments: object) -> None:
            begun.set()
            await go.wait()
            raise HostError("not today")

        monkeypatch.setattr(kernel.backends["native"], "create", create)
        same = Idempotency(key="k", fingerprint="f")
        first = asyncio.create_task(kernel.create(KEPT, idempotency=same))
        await begun.wait()
        waits = _settling(kernel, monkeypatch)
        second = asyncio.create_task(kernel.create(KEPT, idempotency=same))
        await waits.wait()
        go.set()
        for task in (first, second):
            with pytest.raises(HostError, match="not today"):
                await task
        monkeypatch.undo()
        # A failure is not remembered for ever: a later repetition makes its own.
        record = await kernel.create(KEPT, idempotency=same)
        assert (await kernel.create(KEPT, idempotency=same)).id == record.id
        await kernel.remove(record.id)


async def test_who_waits_for_a_create_that_is_given_up_makes_its_own(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Kernel(own_state) as kernel:
        begun, original = asyncio.Event(), kernel.backends["native"].create

        async def create(*arguments: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(kernel.backends["native"], "create", create)
        same = Idempotency(key="k", fingerprint="f")
        first = asyncio.create_task(kernel.create(KEPT, idempotency=same))
        await begun.wait()
        waits = _settling(kernel, monkeypatch)
        second = asyncio.create_task(kernel.create(KEPT, idempotency=same))
        await waits.wait()
        monkeypatch.setattr(kernel.backends["native"], "create", original)
        first.cancel()
        record = await second
        assert record.state == "running"
        assert len((await kernel.list()).records) == 1
        await kernel.remove(record.id)


async def test_who_leaves_while_the_row_is_written_leaves_none(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store carries a write out all the same, also after its caller was cancelled."""
    async with Kernel(own_state) as kernel:
        begun, original = asyncio.Event(), kernel._store.insert_sandbox

        async def insert(*arguments: Any, **options: Any) -> Any:
            begun.set()
            return await original(*arguments, **options)

        monkeypatch.setattr(kernel._store, "insert_sandbox", insert)
        for _ in range(20):
            begun.clear()
            task = asyncio.create_task(kernel.create(KEPT, name="work"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await kernel.list()).records == []
        await kernel.create(KEPT, name="work")
        await kernel.remove("work")


def _settling(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Is set when somebody begins to wait for another's create."""
    begun, original = asyncio.Event(), kernel._settled

    async def settled(record: SandboxRecord) -> SandboxRecord | None:
        begun.set()
        return await original(record)

    monkeypatch.setattr(kernel, "_settled", settled)
    return begun


async def test_what_is_kept_of_output_is_the_profiles(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        record = await kernel.create(SandboxSpec(profile="restrictive"))
        script = ["head", "-c", "5000000", "/dev/zero"]
        result = await kernel.run(record.id, script)
        assert (len(result.stdout), result.truncated) == (4 << 20, True)
        assert result.dropped_bytes == 5_000_000 - (4 << 20)
        assert not (await kernel.run(record.id, script, output_bytes=5_000_000)).truncated
        await kernel.remove(record.id)
