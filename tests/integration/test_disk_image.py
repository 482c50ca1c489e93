"""A kept sandbox with a disk of its own: its bound, its files over stop and start, nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from agentkernel.backends.local import idmaps, uppers
from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.errors import UnenforceableError
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

MIB = 1 << 20


@pytest.fixture
async def spec(
    request: pytest.FixtureRequest, need_engine: Callable[[str], Awaitable[None]]
) -> SandboxSpec:
    """Of the native engine, or of the one that the test's parameter names."""
    backend = getattr(request, "param", "native")
    await need_engine(backend)
    return SandboxSpec(backend=backend, ephemeral=False, disk_bytes=64 * MIB)


# Whoever makes the namespaces, and whoever is the kernel: each shows the guest these mounts in its
# own way.
each_engine = pytest.mark.parametrize("spec", ["native", "runc", "gvisor"], indirect=True)


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    async with Kernel(tmp_path) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


def needs_image() -> None:
    reason, _ = uppers.no_image()
    if reason:
        pytest.skip(f"no image files here: {reason}")


async def shell(kernel: Kernel, script: str) -> ExecResult:
    return await kernel.run("box", ["sh", "-c", script])


def loops_of(image: Path) -> list[str]:
    """Loop devices of the machine that have this file behind them."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().strip().removesuffix(" (deleted)").endswith(str(image)):
                found.append(backing.parts[3])
        except OSError:
            continue
    return found


async def until(condition: Callable[[], bool]) -> None:
    """The kernel does some things in its own time."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def host_mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def image_of(kernel: Kernel, id: str) -> Path:
    return SandboxDirectory(kernel.state_dir / "sandboxes" / id).image


@each_engine
async def test_the_disk_has_an_end_and_stays(kernel: Kernel, spec: SandboxSpec) -> None:
    needs_image()
    record = await kernel.create(spec, name="box")
    image = image_of(kernel, record.id)
    lines = {line.what: line for line in (await kernel.known("box")).effective}
    assert (lines["disk"].value, lines["disk"].enforced_by[:23]) == (
        "64 MiB",
        "size of the ext4 image ",
    )
    mounts = host_mounts()
    assert "/loop" not in mounts and str(image) not in mounts, "the host sees the mount"
    assert len(loops_of(image)) == 1

    full = await shell(kernel, "echo kept > /root/file; head -c 200M /dev/zero > /root/big")
    assert full.status.exit_code != 0 and b"No space left" in full.stderr
    assert full.status.full is not None and "/" in full.status.full.split()
    used = (await kernel.known("box")).usage
    assert used is not None and used.disk_bytes is not None and used.disk_bytes > 48 * MIB
    taken = image.stat().st_blocks * 512
    assert taken <= 66 * MIB, "the file outgrew the limit"

    await shell(kernel, "rm /root/big; chown 33:44 /root/file; rm /usr/bin/yes; sync")
    # What was removed is given back to the host.
    await until(lambda: image.stat().st_blocks * 512 < taken - 40 * MIB)
    await kernel.stop("box")
    assert loops_of(image) == []
    await kernel.start("box")
    again = await shell(kernel, "cat /root/file; stat -c %u:%g /root/file; ls /usr/bin/yes")
    assert again.stdout == b"kept\n33:44\n"
    await kernel.remove("box")
    assert loops_of(image) == [] and not image.exists()


@each_engine
async def test_a_larger_disk_takes_more(kernel: Kernel, spec: SandboxSpec) -> None:
    """Control: the size is what stops a writer."""
    needs_image()
    await kernel.create(msgspec.structs.replace(spec, disk_bytes=400 * MIB), name="box")
    result = await shell(kernel, "head -c 200M /dev/zero > /root/big")
    assert result.status.exit_code == 0 and result.status.full is None


@each_engine
async def test_a_killed_sandbox_leaves_no_loop_device(kernel: Kernel, spec: SandboxSpec) -> None:
    needs_image()
    record = await kernel.create(spec, name="box")
    image = image_of(kernel, record.id)
    await shell(kernel, "echo kept > /root/file; sync")
    pid = SandboxDirectory(image.parent).process()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not loops_of(image))
    await kernel.stop("box")
    await kernel.start("box")
    assert (await shell(kernel, "cat /root/file")).stdout == b"kept\n"


async def test_starting_again_at_once_waits_for_the_old_mount(
    kernel: Kernel, spec: SandboxSpec
) -> None:
    """Two loop devices over one file would destroy what is in it."""
    needs_image()
    record = await kernel.create(spec, name="box")
    image = image_of(kernel, record.id)
    for number in range(5):
        await shell(
            kernel, f"head -c 8M /dev/urandom > /root/{number}; sha1sum /root/* > /root/sums"
        )
        await kernel.stop("box", grace_seconds=0)
        await kernel.start("box")
        assert len(loops_of(image)) == 1
        assert (await shell(kernel, "sha1sum -c --quiet /root/sums 2>&1 | grep -v /root/sums: "
                                    "| grep -v WARNING")).stdout == b""  # fmt: skip


async def test_without_the_means_it_is_refused_or_said(
    kernel: Kernel, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    if idmaps.is_host_root():
        monkeypatch.setattr(uppers, "_mkfs", lambda: None)
    with pytest.raises(UnenforceableError, match="--disk can't be enforced") as caught:
        await kernel.create(spec, name="box")
    assert "--best-effort" in (caught.value.hint or "")
    assert not os.listdir(kernel.state_dir / "sandboxes")
    await kernel.create(msgspec.structs.replace(spec, best_effort=True), name="box")
    known = await kernel.known("box")
    assert any(notice.startswith("disk 64 MiB is not enforced: ") for notice in known.notices)
    assert (await shell(kernel, "head -c 100M /dev/zero > /root/big")).status.exit_code == 0
