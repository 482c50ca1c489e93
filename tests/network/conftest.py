"""The world on this machine's loopback, and a daemon that lives in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world.everything import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()
