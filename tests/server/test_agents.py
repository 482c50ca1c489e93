"""Agents over HTTP: who may do what, and bad requests that leave nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.conformance.footprint import Footprint, wait_until_gone

from .daemon_process import Daemon, eventually

LESS = {"Agentkernel-Owner": "mcp:claude"}


def define(install: str) -> Path:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents" / "tiny.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'name = "tiny"\ntitle = "Tiny"\nversion = "1"\n[install]\n{install}\n'
        '[command]\nheadless = ["true"]\n'
    )
    return path


@pytest.fixture
def tiny(daemon: Daemon) -> Iterator[str]:
    path = define('check = ["true"]')
    yield "tiny"
    daemon.request("DELETE", "/v1/agents/tiny/kit")
    path.unlink()


def test_who_may_see_less_installs_what_is_pinned(daemon: Daemon, tiny: str) -> None:
    path = f"/v1/agents/{tiny}/install"
    wanted = {"update": True, "version": "2"}
    status, refused = daemon.request("POST", path, wanted, LESS)
    assert (status, refused["details"]["needed"]) == (403, "host-paths")
    status, made = daemon.request("POST", path, {}, LESS)
    assert (status, made["version"], made["sandboxes"]) == (200, "1", 0)
    # It is everybody's, and no volume that anybody can name.
    assert daemon.request("POST", path, {})[1]["id"] == made["id"]
    for headers in (LESS, {}):
        for query in ("", "?owner=*") if not headers else ("",):
            _, listed = daemon.request("GET", f"/v1/volumes{query}", headers=headers)
            assert made["id"] not in [volume["id"] for volume in listed["volumes"]]
        assert daemon.request("DELETE", f"/v1/volumes/{made['id']}?force=1", {}, headers)[0] == 404
    # Control: who may see the machine chooses.
    status, chosen = daemon.request("POST", path, wanted)
    assert (status, chosen["version"]) == (200, "2") and chosen["id"] != made["id"]
    status, refused = daemon.request("POST", path, {"update": True}, LESS)
    assert (status, refused["details"]["needed"]) == (403, "host-paths")
    assert daemon.request("POST", path, {}, LESS)[1]["version"] == "2", "somebody else chose it"
    assert daemon.request("POST", path, {"update": True})[1]["version"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/agents/nobody", None, 404),
        ("GET", "/v1/agents/..%2f..%2fetc%2fpasswd", None, 404),
        ("POST", "/v1/agents/nobody/install", {}, 404),
        ("POST", "/v1/agents/%2e%2e/install", {}, 404),
        ("POST", "/v1/agents/tiny/install", {"steps": [["id"]]}, 400),
        ("POST", "/v1/agents/tiny/install", {"version": "2"}, 400),
        ("POST", "/v1/agents/tiny/install", {"update": True, "version": "latest"}, 400),
        ("POST", "/v1/agents/tiny/install", {"update": True, "version": "1; id"}, 400),
        ("POST", "/v1/agents/tiny/install", {"update": True, "version": "1" * 65}, 400),
        ("DELETE", "/v1/agents/tiny/kit", None, 404),
        ("DELETE", "/v1/agents/nobody/kit", None, 404),
    ],
)
def test_bad_requests(
    daemon: Daemon, tiny: str, method: str, path: str, body: Any, status: int
) -> None:
    answered, problem = daemon.request(method, path, body)
    assert answered == status, problem
    assert problem["code"] in ("not_found", "invalid_input", "invalid_request")
    _, info = daemon.request("GET", f"/v1/agents/{tiny}")
    assert info["kit"] is None and info["older"] == []


def test_a_killed_daemon_leaves_nothing_of_an_installation(own_daemon: Daemon) -> None:
    """In the middle of a step, with the kit half filled, a way out and a process of its own."""
    path = define(
        """steps = [["sh", "-c", "echo half > {kit}/half; setsid sleep 999 & sleep 999"]]"""
    )
    boxes, volumes = own_daemon.state_dir / "runs", own_daemon.state_dir / "volumes"

    def ask() -> None:
        with pytest.raises(OSError):
            own_daemon.request("POST", "/v1/agents/tiny/install", {})

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: bool(list(volumes.glob("*/data/half"))))
    (box,) = os.listdir(boxes)
    own_daemon.kill()
    asking.join()
    own_daemon.start()
    footprint = Footprint(
        ids=frozenset({box}),
        state_dir=own_daemon.state_dir,
        processes=frozenset(),
        namespaces=frozenset(),
    )
    assert wait_until_gone(footprint) == []
    assert os.listdir(volumes) == []
    assert own_daemon.request("GET", "/v1/agents/tiny")[1]["kit"] is None
    define("""steps = [["true"]]""")
    assert own_daemon.request("POST", "/v1/agents/tiny/install", {})[0] == 200
    assert own_daemon.request("DELETE", "/v1/agents/tiny/kit")[0] == 204
    path.unlink()
