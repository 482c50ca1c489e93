"""The world on this machine's loopback, a daemon that lives in it, and a sandbox to get out of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon
from .world.everything import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.fixture(scope="session")
def daemon(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldDaemon]:
    daemon = WorldDaemon(tmp_path_factory.mktemp("networked"), world)
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    daemon.close()


# Tests try many things at once; what the caps do has tests of its own.
WIDE = {"connections": 2000, "connections_per_second": 5000}


def usual_rules(world: World) -> list[dict[str, Any]]:
    """What the sandbox of most tests may reach; above all not twin.test and evil.test, which are
    the same servers under other names."""
    web = [world.plain.port, world.tls.port]
    return [
        {"host": "good.test", "ports": [*web, world.recorder.port]},
        {"host": "*.many.test", "ports": web},
        {"host": "other.test", "ports": web, "methods": ["GET"], "paths": ["/api/*", "/reflect/*"]},
        {"host": "expired.test", "ports": web, "methods": ["GET"]},
        {"host": "selfsigned.test", "ports": web, "methods": ["GET"]},
        {"host": "wrong.test", "ports": web, "methods": ["GET"]},
        {"host": "*.rebind.test", "ports": [*web, world.recorder.port, world.metadata.port]},
    ]


@pytest.fixture(scope="module")
def box(daemon: WorldDaemon, world: World) -> Iterator[Box]:
    box = daemon.box(network={"presets": [], "rules": usual_rules(world), "caps": WIDE})
    yield box
    box.remove()
