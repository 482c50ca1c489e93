"""A real daemon in a process of its own, and sandboxes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .daemon_process import Daemon

NewDaemon = Callable[[], Daemon]


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    daemon.close()


@pytest.fixture
def daemon(shared_daemon: Daemon) -> Iterator[Daemon]:
    """The daemon that tests share: whatever they do to it, it is the same process afterwards."""
    pid = shared_daemon.pid
    yield shared_daemon
    assert shared_daemon.alive(), shared_daemon.log()
    status, body = shared_daemon.request("GET", "/v1/version")
    assert (status, body["pid"]) == (200, pid)


@pytest.fixture
def own_daemon(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that a test may end, kill and start again."""
    base = tmp_path_factory.getbasetemp() / "own-daemon"
    base.mkdir(exist_ok=True)
    daemon = Daemon(base)
    daemon.start()
    yield daemon
    if not daemon.alive():
        daemon.start()
    daemon.remove_all()
    assert daemon.terminate() == 0
    daemon.close()


@pytest.fixture
def sandbox(daemon: Daemon) -> Iterator[str]:
    id = daemon.create()
    yield id
    status, _ = daemon.request("DELETE", f"/v1/sandboxes/{id}")
    assert status in (204, 404)
