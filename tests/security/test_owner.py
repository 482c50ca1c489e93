"""Owners that die: kill -9 of whoever holds a sandbox leaves no process, directory, group or id.

Before each kill the test sees that everything is there, which is the control of its being gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.backends.local.idranges import IdRanges
from agentkernel.errors import AgentKernelError, SandboxUnavailableError
from agentkernel.guest.processes import Outcome
from agentkernel.ids import new_id
from agentkernel.kernel import spec
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .probes import eventually

OWNER = """
import asyncio, os, sys
from pathlib import Path
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import start_command
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
async def main():
    async with Runs(Path(sys.argv[1])) as kernel:
        spec = SandboxSpec(unlimited_disk=sys.argv[2] == 'disk')
        sandbox = await kernel.create(spec)
        script = "(setsid sleep 1000 &); mkdir -p /root/a/b; chmod 0 /root/a; echo; exec sleep 1000"
        started = start_command(sandbox, ["sh", "-c", script], ProcessOptions())
        await started.output()
        print(sandbox.id, sandbox.pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@contextlib.contextmanager
def owner(state: Path, disk: str) -> Iterator[tuple[subprocess.Popen[bytes], str, int]]:
    """A process of its own that holds a sandbox; its id and the host's pid of its PID 1."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(state), disk],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert len(words) == 2, "the owner did not come up"
        yield process, words[0].decode(), int(words[1])
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[Path]:
    """A state directory of its own; what a killed owner leaves is collected at the end."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    yield path
    await eventually(lambda: _collected(path), "all is collected")


def members(guest: int) -> list[int]:
    """Every process in the pid namespace of a sandbox, by the host's pids."""
    try:
        wanted = os.stat(f"/proc/{guest}/ns/pid").st_ino
    except OSError:
        return _descendants(guest)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/pid").st_ino == wanted:
                    found.append(int(name))
    return found


def _descendants(guest: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                text = Path(f"/proc/{name}/stat").read_text()
                parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    found = [guest] if guest in parents else []
    for pid in parents:
        at = pid
        while at in parents and at != guest:
            at = parents[at]
        if at == guest and pid != guest:
            found.append(pid)
    return found


def alive(pids: list[int]) -> list[int]:
    """Those that still run: a zombie waits for a parent and does nothing."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def groups_of(id: str) -> list[Path]:
    parents = Hierarchy().parents.values()
    return sorted({parent / id for parent in parents if (parent / id).exists()})


def ranges_of(directory: Path) -> list[int]:
    if os.getuid():
        return []
    return [first for first, owner_ in IdRanges().owners().items() if owner_ == str(directory)]


@pytest.mark.parametrize("disk", ["memory", "disk"])
async def test_killed_owner_leaves_nothing(state: Path, disk: str) -> None:
    with owner(state, disk) as (process, id, guest):
        directory = state / "runs" / id
        inside = members(guest)
        assert len(inside) >= 3, "PID 1, a supervisor, a command"
        assert directory.exists()
        if os.getuid() == 0:
            assert ranges_of(directory)
            assert groups_of(id) or not Hierarchy().parents
        async with Runs(state) as kernel:
            # Control: while the owner lives, another kernel leaves its sandbox alone.
            assert await kernel.backends.collect_garbage() == 0
            assert directory.exists() and guest in alive(inside)
        process.send_signal(signal.SIGKILL)
        await eventually(lambda: not alive(inside), "the guest's processes are gone")
    await eventually(lambda: _collected(state), "the next start collects the sandbox")
    assert os.listdir(state / "runs") == []
    await eventually(lambda: not groups_of(id), "its control groups are gone")
    assert ranges_of(directory) == []


async def _collected(state: Path) -> bool:
    async with Runs(state):
        return not (state / "runs").is_dir() or not os.listdir(state / "runs")


async def test_stopped_owner_keeps_its_sandbox(state: Path) -> None:
    """Control: an owner that is merely stopped is not dead; nobody takes its sandbox away."""
    with owner(state, "memory") as (process, id, guest):
        process.send_signal(signal.SIGSTOP)
        try:
            async with Runs(state) as kernel:
                assert await kernel.backends.collect_garbage() == 0
            assert (state / "runs" / id).exists()
            assert guest in alive([guest])
        finally:
            process.send_signal(signal.SIGCONT)


async def test_killed_pid_1_ends_the_sandbox(state: Path) -> None:
    """kill -9 of agentd from the host: everything inside goes with it, calls say so at once."""
    async with Runs(state) as kernel:
        sandbox = await kernel.create(SandboxSpec())
        guest = sandbox.pid
        inside = members(guest)
        os.kill(guest, signal.SIGKILL)
        result = await kernel.run(sandbox, ["true"]) if not sandbox.channel.closed.done() else None
        assert result is None or result.status.outcome is Outcome.LOST
        with pytest.raises(SandboxUnavailableError):
            await sandbox.channel.call("ping", seconds=2.0)
        await eventually(lambda: not alive(inside), "everything inside is gone")
        await kernel.destroy(sandbox)
    assert os.listdir(state / "runs") == []


async def test_failed_launch_leaves_nothing(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str] = []

    def noted() -> str:
        ids.append(new_id())
        return ids[-1]

    monkeypatch.setattr(spec, "new_id", noted)
    image = tmp_path / "image"
    (image / "bin").mkdir(parents=True)
    (image / "proc").symlink_to("/etc")
    before = len(os.listdir("/proc/self/fd"))
    async with Runs(state) as kernel:
        for _ in range(5):
            with pytest.raises(AgentKernelError):
                await kernel.create(SandboxSpec(image=str(image)))
    assert os.listdir(state / "runs") == []
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(ids) == 5 and not [group for group in _all_groups() if Path(group).name in ids]
    if os.getuid() == 0:
        assert not [o for o in IdRanges().owners().values() if o.startswith(str(state))]


def _all_groups() -> set[str]:
    return {str(p) for parent in Hierarchy().parents.values() for p in parent.glob("*/")}


async def test_many_lives_leave_nothing(state: Path) -> None:
    """Fifty sandboxes made and destroyed: descriptors, groups, mounts and directories as before."""

    async with Runs(state) as kernel:
        await kernel.destroy(await kernel.create(SandboxSpec()))
        before = (len(os.listdir("/proc/self/fd")), _mount_count())
        ids = []
        for _ in range(50):
            sandbox = await kernel.create(SandboxSpec())
            ids.append(sandbox.id)
            await kernel.destroy(sandbox)
        assert (len(os.listdir("/proc/self/fd")), _mount_count()) == before
        assert [group for id in ids for group in groups_of(id)] == []
    assert os.listdir(state / "runs") == []


def _mount_count() -> int:
    with open("/proc/self/mountinfo") as file:
        return len(file.readlines())
