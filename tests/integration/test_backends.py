"""Each sandbox belongs to the engine that made it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from agentkernel.backends.registry import Backends, backend_names
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec


def test_an_engine_is_made_once(tmp_path: Path) -> None:
    backends = Backends(tmp_path)
    assert backends["native"] is backends["native"]
    assert [backend.name for backend in backends] == list(backend_names())


async def test_an_unknown_engine_makes_nothing(state_dir: Path) -> None:
    async with Kernel(state_dir) as kernel:
        with pytest.raises(InvalidInputError, match="no backend called 'nonesuch'") as caught:
            await kernel.create(SandboxSpec(backend="nonesuch"))
        assert "native" in (caught.value.hint or "")
        assert (await kernel.list()).records == []


async def test_a_sandbox_of_an_engine_this_version_lacks_is_left_alone(state_dir: Path) -> None:
    """As after a downgrade: it is shown with the reason, and nothing of it is removed."""
    async with Kernel(state_dir) as kernel:
        kept = await kernel.create(SandboxSpec(ephemeral=False), name="kept")
        await kernel.run("kept", ["sh", "-c", "echo here >/root/file"])
        await kernel.stop("kept")
    _change_backend(state_dir, "nonesuch")
    async with Kernel(state_dir) as kernel:
        record = await kernel.get("kept")
        assert (record.state, record.id) == ("error", kept.id)
        assert "no backend called 'nonesuch'" in (record.error or "")
        for call in (kernel.start, kernel.remove):
            with pytest.raises(InvalidInputError, match="no backend called"):
                await call("kept")
    _change_backend(state_dir, "native")
    async with Kernel(state_dir) as kernel:
        await kernel.start("kept")
        assert (await kernel.run("kept", ["cat", "/root/file"])).stdout == b"here\n"
        await kernel.remove("kept")


def _change_backend(state_dir: Path, name: str) -> None:
    with contextlib.closing(sqlite3.connect(state_dir / "state.db")) as connection, connection:
        connection.execute("UPDATE sandboxes SET backend = ?", (name,))
