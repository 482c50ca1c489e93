"""At every fault point of a volume's life its owner is killed, or the system refuses: afterwards it
is there whole, or not at all, and nothing of it is left."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel

from .cases import READY, VOLUME_CASES, VolumeCase
from .conftest import Die
from .leftovers import World
from .operations import CONTENT, OPERATIONS, arm


@pytest.mark.parametrize("case", VOLUME_CASES, ids=str)
async def test_killed_there(case: VolumeCase, world: World, die: Die) -> None:
    name = new_id()
    assert die(case.operation, case.points, name) == -9
    async with world.kernel() as kernel:
        await check(case, world, kernel, name)
        if case.after == READY:
            await kernel.volumes.remove(name)
        await OPERATIONS["volume import"].do(kernel, name)
        await kernel.volumes.remove(name)
        assert os.listdir(world.state_dir / "volumes") == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("case", [case for case in VOLUME_CASES if case.fails], ids=str)
async def test_refused_there(case: VolumeCase, number: int, world: World) -> None:
    name = new_id()
    before, do = OPERATIONS[case.operation]

    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    async with world.kernel() as kernel:
        await before(kernel, name)
        arm(case.points, refuse)
        with pytest.raises(AgentKernelError):
            await do(kernel, name)
        await check(case, world, kernel, name)
        await do(kernel, name)
        await kernel.volumes.remove(name)


async def test_control_a_killed_import_leaves_something_for_the_next(
    world: World, die: Die
) -> None:
    assert die("volume import", "volume.imported", new_id()) == -9
    (left,) = os.listdir(world.state_dir / "volumes")
    assert (world.state_dir / "volumes" / left / "data" / "kept").is_dir()
    async with world.kernel():
        assert os.listdir(world.state_dir / "volumes") == []


async def check(case: VolumeCase, world: World, kernel: Kernel, name: str) -> None:
    await world.check(kernel, set())
    found = {info.name: info for info in await kernel.volumes.list()}
    directory = world.state_dir / "volumes"
    left = os.listdir(directory) if directory.exists() else []
    assert left == [info.id for info in found.values()]
    if case.after != READY:
        assert found == {}
        return
    assert found[name].state == "ready"
    if case.operation != "volume create":
        async with kernel.volumes.export(name) as pieces:
            data = b"".join([piece async for piece in pieces])
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            file = tar.extractfile("kept/file")
            assert file and file.read() == CONTENT


async def test_files_whose_record_is_lost_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a database was put back from before the volume was made, or removed."""
    async with Kernel(tmp_path) as kernel:
        lost = await kernel.volumes.create("lost", owner="local")
    data = tmp_path / "volumes" / lost.id / "data"
    data.mkdir()
    (data / "work").write_text("of a week")
    empty = tmp_path / "volumes" / "empty"
    empty.mkdir()
    for name in os.listdir(tmp_path):
        if name.startswith("state.db"):
            os.unlink(tmp_path / name)
    async with Kernel(tmp_path) as kernel:
        assert await kernel.volumes.list() == []
        assert (data / "work").read_text() == "of a week"
        assert not empty.exists()
    assert f"volumes/{lost.id}" in caplog.text
