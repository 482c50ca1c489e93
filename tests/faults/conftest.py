"""One state directory with a bystander in it, which every fault has to leave alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agentkernel import faults
from agentkernel.guest.binary import agentd_path
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel

from .leftovers import World
from .operations import KEPT, job, running, write

OWNERS = Path(__file__).with_name("owners.py")
Die = Callable[[str, str, str], int]


@pytest.fixture(scope="module")
def own_agentd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy for these tests alone: whatever process runs it is theirs."""
    path = tmp_path_factory.mktemp("agentd") / "agentd"
    shutil.copy(agentd_path(), path)
    path.parent.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTKERNEL_AGENTD", str(path))
        yield path


@pytest.fixture(scope="module")
async def world(
    tmp_path_factory: pytest.TempPathFactory, own_agentd: Path, state_dir: Path
) -> AsyncIterator[World]:
    path = tmp_path_factory.mktemp("state")
    # The images take a while to make, and are the same.
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    world = World(path, own_agentd, new_id())
    async with Kernel(path) as kernel:
        await running(kernel, world.bystander)
        await write(kernel, world.bystander, KEPT, b"bystander")
        await job(kernel, world.bystander)
    yield world
    async with Kernel(path) as kernel:
        await kernel.remove(world.bystander)
    assert await world.orphans(set()) == []


@pytest.fixture(scope="module")
def die(own_agentd: Path, world: World) -> Iterator[Die]:
    """Runs an operation in an owner that dies at a point; how it ended."""
    process = subprocess.Popen(
        [sys.executable, OWNERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    requests, answers = process.stdin, process.stdout

    def die(operation: str, points: str, id: str) -> int:
        requests.write(json.dumps([str(world.state_dir), operation, points, id]) + "\n")
        requests.flush()
        return int(answers.readline())

    yield die
    requests.close()
    assert process.wait(10) == 0
    answers.close()


@pytest.fixture(autouse=True)
def nothing_stays_armed() -> Iterator[None]:
    yield
    assert faults.disarm() == [], "it was never reached"
