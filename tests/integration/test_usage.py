"""What sandboxes use and which limits they meet: in results, in events, in `known`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.backends.native.backend import NativeBackend
from agentkernel.errors import SandboxUnavailableError, UnenforceableError
from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.kernel import insight
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

MIB = 1 << 20
KEPT = SandboxSpec(ephemeral=False)
# 300 MiB in one process, and it touches every page of them.
MEMORY_BOMB = ["sh", "-c", "x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}"]
# It needs more processes than it may have, and says so.
FORKS = ["sh", "-c", "for i in $(seq 60); do sleep 20 & done; echo $?"]


@pytest.fixture
async def kernel(state_dir: Path, tmp_path: Path) -> AsyncIterator[Kernel]:
    (tmp_path / "images").symlink_to(_images(state_dir))
    async with Kernel(tmp_path) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


def _images(state_dir: Path) -> Path:
    """The host image of the whole run: it takes a second to make."""
    (state_dir / "images").mkdir(exist_ok=True)
    return state_dir / "images"


async def make(kernel: Kernel, **spec: Any) -> str:
    try:
        return (await kernel.create(SandboxSpec(**spec))).id
    except UnenforceableError as error:
        pytest.skip(f"this machine can't enforce it, and says so: {error}")


async def make_small(kernel: Kernel, disk_bytes: int) -> str:
    """A sandbox with little room for files. That its memory may not be enforced is no matter."""
    id = await make(kernel, disk_bytes=disk_bytes, memory_bytes=128 * MIB, best_effort=True)
    for line in (await kernel.known(id)).effective:
        if line.what == "disk" and line.enforced_by.startswith("not enforced"):
            pytest.skip(f"files have no bound here: {line.enforced_by}")
    return id


async def events(kernel: Kernel, kind: str, count: int = 1) -> list[dict[str, Any]]:
    """The bodies of all events of a kind, once there are so many."""
    async with asyncio.timeout(20):
        while True:
            page = await kernel.events(0, kinds=[kind])
            if len(page.records) >= count:
                return [event.body for event in page.records]
            await kernel.wait_for_events(page.next)


async def shell(kernel: Kernel, id: str, script: str, **options: Any) -> ExecResult:
    return await kernel.run(id, ["sh", "-c", script], ProcessOptions(**options))


# -- limits that were met -------------------------------------------------------------------------


async def test_out_of_memory_is_an_outcome_and_an_event(kernel: Kernel) -> None:
    id = await make(kernel, memory_bytes=128 * MIB)
    result = await kernel.run(id, MEMORY_BOMB)
    assert b"314572800" not in result.stdout
    (hit,) = await events(kernel, "sandbox.limit")
    assert (hit["limit"], hit["times"]) == ("memory", 1)
    assert "no more than 128 MiB of memory" in hit["words"]
    used = (await kernel.known(id)).usage
    assert used is not None and used.peak_memory_bytes is not None
    assert 100 * MIB < used.peak_memory_bytes <= 129 * MIB
    direct = await kernel.run(id, ["head", "-c", "300M", "/dev/zero"], output_bytes=0)
    assert direct.status.outcome is Outcome.EXITED, "control: what needs no memory goes on"


async def test_a_job_that_ran_out_of_memory_is_judged_once(kernel: Kernel) -> None:
    """Whoever is attached and whoever asks later hear the same."""
    id = await make(kernel, memory_bytes=128 * MIB)
    job = await kernel.jobs.start(id, ["tail", "/dev/zero"])
    async with kernel.jobs.attach(job.id) as process:
        while await process.output() is not None:
            pass
    assert (await kernel.jobs.outcome(job)).outcome is Outcome.OOM
    (ended,) = await events(kernel, "job.ended")
    assert ended["outcome"] == "oom" and ended["usage"]["cpu_seconds"] > 0
    status = (await kernel.jobs.get(job.id)).status
    assert status is not None and status["outcome"] == "oom"


async def test_the_same_with_more_memory(kernel: Kernel) -> None:
    """Control."""
    id = await make(kernel, memory_bytes=2048 * MIB)
    assert (await kernel.run(id, MEMORY_BOMB)).stdout == b"314572800\n"
    assert (await kernel.events(0, kinds=["sandbox.limit"])).records == []


async def test_too_many_processes_are_an_event(kernel: Kernel) -> None:
    id = await make(kernel, pids=24)
    for _ in range(3):
        await kernel.run(id, FORKS)
    lines = {line.what: line.enforced_by for line in (await kernel.known(id)).effective}
    if "control group" not in lines["pids"]:
        pytest.skip(f"nobody counts refused forks here: {lines['pids']}")
    (hit,) = await events(kernel, "sandbox.limit")
    assert hit["limit"] == "pids" and "no more than 24 processes" in hit["words"]


async def test_enough_processes_are_none(kernel: Kernel) -> None:
    """Control."""
    id = await make(kernel, pids=200)
    await kernel.run(id, FORKS)
    assert (await kernel.events(0, kinds=["sandbox.limit"])).records == []


@pytest.mark.parametrize(("path", "words"), [("/root", "of 32 MiB at /"), ("/tmp", "at /tmp")])
async def test_no_room_for_files_is_an_event(kernel: Kernel, path: str, words: str) -> None:
    id = await make_small(kernel, 32 * MIB)
    fine = await shell(kernel, id, f"head -c 8M /dev/zero > {path}/some")
    assert fine.status.full is None, "control"
    result = await shell(kernel, id, f"head -c 80M /dev/zero > {path}/big")
    assert result.status.exit_code != 0 and b"No space left" in result.stderr
    (hit,) = await events(kernel, "sandbox.limit")
    assert hit["limit"] == "disk" and words in hit["words"]


async def test_a_guest_can_not_flood_the_events(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await make_small(kernel, 16 * MIB)
    await shell(kernel, id, "head -c 80M /dev/zero > /root/big")
    for _ in range(20):
        await shell(kernel, id, "true")
    assert len(await events(kernel, "sandbox.limit")) == 1
    monkeypatch.setattr(insight, "TELL_EVERY_S", 0.0)
    live = kernel.live[id]
    live.meter._told_at.clear()
    await shell(kernel, id, "true")
    _, second = await events(kernel, "sandbox.limit", 2)
    assert second["times"] == 21, "what was not told is counted"


async def test_a_quota_holds_by_the_kernels_own_count(kernel: Kernel) -> None:
    """Time used against periods in which there was something to run: no clock of ours in it."""
    id = await make(kernel, cpus=0.2)
    stat = "/sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpu/cpu.stat"
    spin = f"until grep -qs 'nr_throttled [1-9]' {stat}; do :; done"
    result = await shell(kernel, id, f"({spin}) & ({spin}) & wait")
    assert result.status.exit_code == 0
    used = (await kernel.known(id)).usage
    assert used is not None and used.cpu_seconds is not None and used.throttled_seconds is not None
    assert used.throttled_seconds > 0
    periods = _periods(id)
    assert periods > 0
    assert used.cpu_seconds <= 1.3 * (periods + 2) * 0.2 * 0.1

    free = await make(kernel, cpus=64)
    await shell(kernel, free, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")
    used = (await kernel.known(free)).usage
    assert used is not None and used.throttled_seconds == 0, "control"


def _periods(id: str) -> int:
    words = (Hierarchy().parents["cpu"] / id / "cpu.stat").read_text().split()
    return int(words[words.index("nr_periods") + 1])


async def test_a_timeout_has_its_usage(kernel: Kernel) -> None:
    id = await make(kernel)
    result = await shell(kernel, id, "while :; do :; done", timeout_seconds=0.3)
    assert result.status.outcome is Outcome.TIMEOUT
    used = result.status.usage.cpu_seconds
    assert used is not None and 0 < used < 5


# -- what was used --------------------------------------------------------------------------------


async def test_usage_of_a_command(kernel: Kernel) -> None:
    id = (await kernel.create(KEPT)).id
    result = await shell(
        kernel, id, "head -c 20M /dev/zero > /root/big; sync; head -c 5000 /dev/zero; echo x >&2"
    )
    used = result.status.usage
    assert used.output_bytes == 5002
    assert used.cpu_seconds is not None and used.cpu_seconds > 0
    assert used.peak_memory_bytes is not None and used.peak_memory_bytes > 100_000
    assert used.disk_written_bytes is not None and used.disk_written_bytes >= 19 * MIB
    less = (await shell(kernel, id, "true")).status.usage
    assert less.output_bytes == 0 and less.disk_written_bytes == 0


async def test_usage_of_orphans_counts(kernel: Kernel) -> None:
    """A child that left its parent and ended before the command did is a part of it."""
    id = await make(kernel)
    work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch /tmp/done"
    script = f"(setsid sh -c '{work}' &) ; while [ ! -e /tmp/done ]; do sleep 0.01; done; sleep 0.2"
    used = (await shell(kernel, id, script)).status.usage
    assert used.cpu_seconds is not None and used.cpu_seconds > 0.05


async def test_a_lost_command_has_no_usage(kernel: Kernel) -> None:
    id = (await kernel.create(KEPT)).id
    async with kernel.exec(id, ["sleep", "100"]) as process:
        await process.started()
        await kernel.stop(id, grace_seconds=0)
        with pytest.raises(SandboxUnavailableError):
            await process.output()
        status = await kernel.judge(id, process.status)
    assert status.outcome is Outcome.LOST
    assert status.usage.cpu_seconds is status.usage.output_bytes is None


async def test_events_of_an_end_carry_usage(kernel: Kernel) -> None:
    id = (await kernel.create(KEPT)).id
    spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    job = await kernel.jobs.start(id, ["sh", "-c", spin])
    (ended,) = await events(kernel, "job.ended")
    assert (ended["job"], ended["outcome"], ended["exit_code"]) == (job.id, "exited", 0)
    assert ended["usage"]["cpu_seconds"] > 0
    await kernel.stop(id)
    (stopped,) = await events(kernel, "sandbox.stopped")
    assert stopped["usage"]["cpu_seconds"] >= ended["usage"]["cpu_seconds"] * 0.9
    assert stopped["usage"]["counted_by"]
    last = (await kernel.known(id)).usage
    assert last is not None and last.cpu_seconds == stopped["usage"]["cpu_seconds"]
    await kernel.remove(id)
    (removed,) = await events(kernel, "sandbox.removed")
    assert removed["usage"] == stopped["usage"], "it did not run since"


async def test_usage_before_a_clock_ends_it(kernel: Kernel) -> None:
    await kernel.create(KEPT, ttl_seconds=0.3, on_ttl="remove")
    (expiring,) = await events(kernel, "sandbox.expiring")
    assert expiring["usage"]["cpu_seconds"] is not None
    assert (await events(kernel, "sandbox.removed"))[0]["usage"]["cpu_seconds"] is not None


async def test_usage_without_control_groups_says_what_it_counts(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = kernel.backends["native"]
    assert isinstance(backend, NativeBackend)
    monkeypatch.setattr(backend, "_hierarchy", Hierarchy(Path("/nowhere")))
    record = await kernel.create(KEPT)
    spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    done = await shell(kernel, record.id, spin)
    known = await kernel.known(record.id)
    used = known.usage
    assert used is not None and "agentd" in used.counted_by
    assert used.cpu_seconds is not None and done.status.usage.cpu_seconds is not None
    assert used.cpu_seconds >= done.status.usage.cpu_seconds - 0.05
    assert used.memory_bytes and used.peak_memory_bytes is None and used.throttled_seconds is None
    assert any(notice.startswith("memory 4 GiB is not enforced") for notice in known.notices)
    with pytest.raises(UnenforceableError, match="/nowhere is not there") as caught:
        await kernel.create(SandboxSpec(memory_bytes=64 * MIB))
    assert "--best-effort" in (caught.value.hint or "")
    best = await kernel.create(SandboxSpec(memory_bytes=64 * MIB, best_effort=True))
    assert "memory 64 MiB is not enforced: /nowhere is not there" in insight.Known.of(best).notices
    await kernel.stop(record.id)
    (stopped,) = await events(kernel, "sandbox.stopped")
    assert stopped["usage"]["cpu_seconds"] is not None


async def test_what_holds_is_known_later(state_dir: Path, tmp_path: Path) -> None:
    """By another kernel, and of a sandbox that does not run."""
    (tmp_path / "images").symlink_to(_images(state_dir))
    async with Kernel(tmp_path) as first:
        record = await first.create(KEPT, name="box")
        told = (await first.known("box")).effective
        assert {line.what for line in told} >= {"memory", "cpus", "pids", "disk", "network"}
    async with Kernel(tmp_path) as second:
        known = await second.known("box")
        assert known.effective == told and known.usage is not None
        await second.stop("box")
        assert (await second.known("box")).effective == told
    async with Kernel(tmp_path) as third:
        known = await third.known("box")
        assert known.effective == told and known.usage is not None
        await third.remove("box")
    assert record.id not in os.listdir(tmp_path / "sandboxes")
