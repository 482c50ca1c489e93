"""A store of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.kernel.store import Store

from .making import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with await Store.open(path, clock=clock) as store:
        yield store
