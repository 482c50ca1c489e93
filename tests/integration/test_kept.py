"""Kept sandboxes: they outlive their owner, and their files outlive their processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from agentkernel.backends.base import Blueprint, Sandbox
from agentkernel.backends.local import idmaps
from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.backends.local.idranges import IdRanges
from agentkernel.backends.native.backend import NativeBackend
from agentkernel.errors import NotFoundError
from agentkernel.guest.processes import GuestProcess, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.spec import SandboxSpec, expand

COUNT_SLEEPS = "cat /proc/[0-9]*/comm | grep -cx sleep"


@pytest.fixture
def blueprint() -> Blueprint:
    return expand(SandboxSpec(ephemeral=False), owned=False)


async def shell(sandbox: Sandbox, script: str) -> str:
    options = ProcessOptions(env=dict(sandbox.environment))
    process = GuestProcess.start(sandbox.channel, ["sh", "-c", script], options)
    output = b""
    while (part := await process.output()) is not None:
        output += part[1] if part[0] is Channel.STDOUT else b""
    assert process.status is not None and process.status.exit_code == 0, process.status
    return output.decode()


def leftovers(state_dir: Path, id: str) -> list[str]:
    """Whatever of the sandbox the machine still has."""
    found = [str(path) for path in Hierarchy().parents.values() if (path / id).exists()]
    found += [str(p) for p in (state_dir / "sandboxes").glob(f"*{id}*")]
    if idmaps.is_host_root():
        found += [owner for owner in IdRanges().owners().values() if id in owner]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if id in Path(f"/proc/{pid}/mountinfo").read_text():
                found.append(f"process {pid}")
        except OSError:
            continue
    return found


async def test_a_new_owner_finds_it_running(state_dir: Path, blueprint: Blueprint) -> None:
    first = await NativeBackend(state_dir).create(blueprint)
    await shell(first, "echo kept > /root/file; (setsid sleep 1000 > /dev/null 2>&1 &)")
    first.channel.close()  # the owner dies

    second = await NativeBackend(state_dir).reattach(blueprint)
    assert second is not None
    assert await shell(second, f"cat /root/file; {COUNT_SLEEPS}") == "kept\n1\n"
    assert second.effective == first.effective
    await second.destroy()
    assert leftovers(state_dir, blueprint.id) == []


async def test_stop_and_start_keep_the_files(state_dir: Path, blueprint: Blueprint) -> None:
    backend = NativeBackend(state_dir)
    sandbox = await backend.create(blueprint)
    await shell(
        sandbox, "echo kept > /root/file; rm /usr/bin/yes; echo gone > /tmp/file; sleep 9 &"
    )
    await sandbox.stop(grace_seconds=0.2)
    await sandbox.stop()
    assert await backend.reattach(blueprint) is None

    again = await backend.start(blueprint)
    script = f"cat /root/file; ls /usr/bin/yes /tmp/file 2>/dev/null; {COUNT_SLEEPS}; true"
    assert await shell(again, script) == "kept\n0\n"
    await again.stop()
    await backend.remove(blueprint.id)
    await backend.remove(blueprint.id)
    assert leftovers(state_dir, blueprint.id) == []
    with pytest.raises(NotFoundError):
        await backend.start(blueprint)


async def test_one_that_ended_unwatched_keeps_only_its_files(
    state_dir: Path, blueprint: Blueprint
) -> None:
    """Killed, or gone with the machine: a stopped sandbox holds no ids and no control groups."""
    sandbox = await NativeBackend(state_dir).create(blueprint)
    await shell(sandbox, "echo kept > /root/file")
    sandbox.channel.close()
    os.kill(sandbox.pid, signal.SIGKILL)
    os.waitpid(sandbox.pid, 0)  # noqa: ASYNC222 (it is dead)
    directory = state_dir / "sandboxes" / blueprint.id
    assert {"process", "runtime"} <= set(os.listdir(directory)), "control"

    backend = NativeBackend(state_dir)
    assert await backend.reattach(blueprint) is None
    assert leftovers(state_dir, blueprint.id) == [str(directory)]
    assert not {"s", "process", "runtime"} & set(os.listdir(directory))
    again = await backend.start(blueprint)
    assert await shell(again, "cat /root/file") == "kept\n"
    await again.destroy()
    assert leftovers(state_dir, blueprint.id) == []


async def test_remove_ends_what_nobody_watches(state_dir: Path, blueprint: Blueprint) -> None:
    sandbox = await NativeBackend(state_dir).create(blueprint)
    await shell(sandbox, "mkdir -m 000 /root/closed; (setsid sleep 1000 > /dev/null 2>&1 &)")
    sandbox.channel.close()
    await NativeBackend(state_dir).remove(blueprint.id)
    assert leftovers(state_dir, blueprint.id) == []


async def test_garbage_collection_leaves_it_alone(state_dir: Path, blueprint: Blueprint) -> None:
    backend = NativeBackend(state_dir)
    sandbox = await backend.create(blueprint)
    sandbox.channel.close()
    assert await backend.collect_garbage() == 0
    again = await backend.reattach(blueprint)
    assert again is not None
    await again.destroy()
