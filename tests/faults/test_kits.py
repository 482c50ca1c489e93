"""Whoever installs or removes an agent is killed at any moment, or the system refuses: afterwards
the kit is there whole, or not at all, and nothing of it is left."""

from __future__ import annotations

import errno
import os

import pytest

from agentkernel.errors import AgentKernelError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.volumes import OURS

from .cases import KIT_CASES, READY, VolumeCase
from .conftest import Die
from .leftovers import World
from .operations import OPERATIONS, agent, arm


@pytest.mark.parametrize("case", KIT_CASES, ids=str)
async def test_killed_there(case: VolumeCase, world: World, die: Die) -> None:
    name = new_id()
    assert die(case.operation, case.points, name) == -9
    async with world.kernel() as kernel:
        await check(case, world, kernel, name)
        await kernel.agents.kits.ready(agent(name))
        await kernel.agents.kits.remove(name)
        assert left(world) == ([], [])


@pytest.mark.parametrize("case", [case for case in KIT_CASES if case.fails], ids=str)
async def test_refused_there(case: VolumeCase, world: World) -> None:
    name = new_id()
    before, do = OPERATIONS[case.operation]

    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with world.kernel() as kernel:
        await before(kernel, name)
        arm(case.points, refuse)
        with pytest.raises(AgentKernelError):
            await do(kernel, name)
        await check(case, world, kernel, name)
        await do(kernel, name)
        await kernel.agents.kits.remove(name)
        assert left(world) == ([], [])


async def test_control_a_killed_installation_leaves_something_for_the_next(
    world: World, die: Die
) -> None:
    assert die("kit install", "kit.recorded", new_id()) == -9
    volumes, records = left(world)
    assert len(volumes) == 1 and records == [f"{volumes[0]}.json"]
    async with world.kernel():
        assert left(world) == ([], [])


def left(world: World) -> tuple[list[str], list[str]]:
    """Files of volumes, and records of kits."""
    places = (world.state_dir / "volumes", world.state_dir / "agents" / "kits")
    found = [os.listdir(place) if place.exists() else [] for place in places]
    return found[0], found[1]


async def check(case: VolumeCase, world: World, kernel: Kernel, name: str) -> None:
    await world.check(kernel, set())
    ids = [info.id for info in await kernel.volumes.list(OURS)]
    assert left(world) == (ids, [f"{id}.json" for id in ids])
    if case.after != READY:
        assert ids == []
        return
    # What is there is what a session gets.
    assert [(await kernel.agents.kits.ready(agent(name))).id] == ids
