"""What was acknowledged is there after kill -9, a power cut loses only a marked end, and a disk
that is full is an error, not the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.errors import NotFoundError
from agentkernel.kernel.store import NewEvent, Store, writer

from .making import execute, numbered, sandbox

CHILDREN = str(Path(__file__).with_name("children.py"))
UNSHARE = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount"]


def read_until_killed(path: Path, lines: int) -> list[list[str]]:
    """Lets a child write, kills it after some lines, and gives all that it was told."""
    with subprocess.Popen(
        [sys.executable, CHILDREN, "write_for_ever", str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    assert all(line.endswith("\n") for line in said)
    return [line.split() for line in said]


@pytest.mark.slow
async def test_kill_9_loses_nothing_that_was_acknowledged(path: Path) -> None:
    chance = random.Random()
    for _ in range(20):
        said = read_until_killed(path, chance.randrange(1, 400))
        async with await Store.open(path) as store:
            boxes = {record.id: record for record in await store.all_sandboxes()}
            owners = {
                event.seq: event.sandbox_id
                for start in range(0, (await store.statistics()).newest_event, 1000)
                for event in (await store.events(start, limit=1000)).records
            }
            for what, key, *rest in said:
                match what:
                    case "sandbox":
                        assert key in boxes
                    case "job":
                        assert (await store.get_job(key)).id == key
                    case "event":
                        assert [owners[int(key) - n] for n in range(3)] == rest * 3
                    case "update":
                        assert boxes[key].ttl_seconds == float(rest[0])


def image(store: Store, target: Path) -> Path:
    """The files as a power cut would leave them if the disk had all of them."""
    target.mkdir()
    for name in ("state.db", "state.db-wal"):
        shutil.copy(store.path.with_name(name), target / name)
    return target / "state.db"


async def test_after_a_power_cut_there_is_a_prefix_and_a_mark(tmp_path: Path, path: Path) -> None:
    chance = random.Random()
    async with await Store.open(path) as store:
        boxes = [sandbox() for _ in range(30)]
        for box in boxes:
            await store.insert_sandbox(box, events=[NewEvent(kind="made", sandbox_id=box.id)])
        whole = image(store, tmp_path / "whole")
    size = os.stat(f"{whole}-wal").st_size
    for number in range(20):
        copy = tmp_path / str(number)
        shutil.copytree(whole.parent, copy)
        os.truncate(copy / "state.db-wal", chance.randrange(size) if number else 0)
        async with await Store.open(copy / "state.db") as store:
            found = await store.all_sandboxes()
            assert found == boxes[: len(found)]
            assert len((await store.events()).records) == len(found)


async def test_a_machine_that_stopped_is_marked_and_numbers_leap(
    tmp_path: Path, path: Path
) -> None:
    async with await Store.open(path) as store:
        await store.append_events(numbered(3))
        same_boot = image(store, tmp_path / "same")
        other_boot = image(store, tmp_path / "other")
    execute(other_boot, "UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
    for _ in range(2):
        async with await Store.open(other_boot, sync_seconds=2.0) as store:
            page = await store.events(3)
            assert [event.kind for event in page.records] == ["state.gap"]
            assert page.records[0].seq == 3 + writer.SEQ_LEAP + 1
            assert page.records[0].body == {
                "reason": "the machine stopped",
                "window_seconds": 2.0,
            }
            assert (await store.statistics()).events == 4
    # A process that was killed lost nothing; a session that was closed has nothing to lose.
    execute(path, "UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
    for without in (same_boot, path):
        async with await Store.open(without) as store:
            assert (await store.events(3)).records == []
            assert await store.append_events(numbered(1)) == [4]


async def test_the_log_is_synced_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    async with await Store.open(path, sync_seconds=0.0) as store:
        monkeypatch.setattr(os, "fsync", fsync)
        await store.append_events(numbered(1))
        await store.append_events([])  # served after the sync
        assert synced[0] == "state.db-wal"

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    async with await Store.open(path, sync_seconds=0.0) as store:
        monkeypatch.setattr(os, "fsync", broken)
        await store.append_events(numbered(1))
        await store.append_events([])
        assert (await store.statistics()).failed_syncs >= 1


def test_a_full_disk_is_an_error_that_passes(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$2" -W error "$3" full_disk "$1"'
    if not shutil.which("mount"):
        pytest.skip("mount is not installed")
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace to mount a small file system in")
    command = [*UNSHARE, "sh", "-c", script, "sh", str(tmp_path), sys.executable, CHILDREN]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_failing_write_is_an_error_that_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", CHILDREN, "limited_file", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_killed_creation_leaves_no_half_made_state(path: Path) -> None:
    for lines in (0, 0, 1):
        said = read_until_killed(path, lines)
    async with await Store.open(path) as store:
        for what, key, *_ in said:
            if what == "sandbox":
                assert (await store.get_sandbox(key)).id == key
        with pytest.raises(NotFoundError):
            await store.get_sandbox("nothing")
