"""At every fault point of an agent's session its daemon is killed, or the system refuses: then
nothing of it is left, or the next daemon brings it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sqlite3

import pytest

from agentkernel.errors import AgentKernelError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel

from .cases import SESSION_CASES
from .conftest import Die
from .leftovers import World
from .operations import OPERATIONS, arm


async def check_nothing_left(world: World, kernel: Kernel) -> None:
    await world.check(kernel, set())
    assert (await kernel.agents.sessions.list()).sessions == []
    assert [record.id for record in (await kernel.list()).records] == [world.bystander]
    directory = world.state_dir / "agents" / "sessions"
    assert not directory.exists() or os.listdir(directory) == []


@pytest.mark.parametrize("point", SESSION_CASES)
async def test_killed_there(point: str, world: World, die: Die) -> None:
    assert die("agent session", point, new_id()) == -9
    async with world.kernel() as kernel:
        if point != "session.ended":
            await check_nothing_left(world, kernel)
            return
        (session,) = (await kernel.agents.sessions.list()).sessions
        async with asyncio.timeout(30):
            log = [event async for event in kernel.agents.sessions.events(session.id)]
        assert [event.kind for event in log] == ["session", "output", "ended"]
        session = await kernel.agents.sessions.get(session.id)
        assert (session.state, session.exit_code) == ("ended", 3)
        await kernel.agents.sessions.remove(session.id)
        await check_nothing_left(world, kernel)


async def test_control_a_killed_start_leaves_something_for_the_next(world: World, die: Die) -> None:
    assert die("agent session", "session.job", new_id()) == -9
    assert len(os.listdir(world.state_dir / "sandboxes")) == 2
    async with world.kernel() as kernel:
        await check_nothing_left(world, kernel)


async def test_a_killed_setup_leaves_no_wider_network(world: World, die: Die) -> None:
    id = new_id()
    assert die("agent session inside", "session.setup", id) == -9
    # The control: that is what the daemon was killed with.
    with contextlib.closing(sqlite3.connect(world.state_dir / "state.db")) as rows:
        (text,) = rows.execute("SELECT network FROM sandboxes WHERE id = ?", (id,)).fetchone()
    assert json.loads(text)["phase"] == "setup"
    async with world.kernel() as kernel:
        assert (await kernel.network.show(id)).phase == "default"
        assert (await kernel.agents.sessions.list()).sessions == []
        await world.check(kernel, {id})
        await kernel.remove(id)


@pytest.mark.parametrize(
    "points",
    ["session.row>store.commit", "session.sandbox>store.commit", "session.job>store.commit"],
)
async def test_refused_there(points: str, world: World) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with world.kernel() as kernel:
        arm(points, refuse)
        with pytest.raises(AgentKernelError):
            await OPERATIONS["agent session"].do(kernel, new_id())
        await check_nothing_left(world, kernel)
        await OPERATIONS["agent session"].do(kernel, new_id())
        (session,) = (await kernel.agents.sessions.list()).sessions
        await kernel.agents.sessions.remove(session.id)
