"""A real daemon in a process of its own, and sandboxes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .daemon_process import Daemon
from .network_process import NetworkDaemon

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


@pytest.fixture(scope="session")
def shared_network_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkDaemon]:
    daemon = NetworkDaemon(
        tmp_path_factory.mktemp("network"),
        *("--allow-host", "ak.example.org", "--allow-origin", "https://app.example.org"),
    )
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    daemon.close()


@pytest.fixture
def network_daemon(shared_network_daemon: NetworkDaemon) -> Iterator[NetworkDaemon]:
    """A daemon on TCP that tests share: whatever they do to it, it is the same one afterwards.
    Their tokens are revoked."""
    pid = shared_network_daemon.pid
    yield shared_network_daemon
    assert shared_network_daemon.alive(), shared_network_daemon.log()
    status, body = shared_network_daemon.request("GET", "/v1/version")
    assert (status, body["pid"]) == (200, pid)
    for token in shared_network_daemon.request("GET", "/v1/tokens")[1]["tokens"]:
        shared_network_daemon.request("DELETE", f"/v1/tokens/{token['id']}")
    assert "Traceback" not in shared_network_daemon.log()
