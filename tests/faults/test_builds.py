"""Whoever builds is killed at any moment: no sandbox is left, nothing has a name that is not whole,
and the same build succeeds afterwards."""

from __future__ import annotations

import pytest

from agentkernel.errors import NotFoundError
from agentkernel.ids import new_id
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

from .cases import BUILD_CASES
from .conftest import Die
from .leftovers import World
from .operations import build, read


@pytest.mark.parametrize(("points", "named"), BUILD_CASES)
async def test_killed_there(points: str, named: bool, world: World, die: Die) -> None:
    id = new_id()
    assert die("build", points, id) == -9
    async with world.kernel() as kernel:
        await world.check(kernel, set())
        if named:
            assert await _is_whole(kernel, id)
        else:
            with pytest.raises(NotFoundError):
                await kernel.images.inspect(f"localhost/built-{id}")
        with kernel.images.store.removing():
            pass  # nobody holds the store any more
        built = await build(kernel, id)
        assert built.names == [f"localhost/built-{id}:latest"]
        assert await _is_whole(kernel, id)
        await world.check(kernel, set())


async def _is_whole(kernel: Kernel, id: str) -> bool:
    record = await kernel.create(SandboxSpec(image=f"localhost/built-{id}"))
    try:
        return await read(kernel, record.id, "/id") == id.encode()
    finally:
        await kernel.remove(record.id)
