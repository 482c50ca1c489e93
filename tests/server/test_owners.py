"""Whose sandboxes there are for a caller, and what it may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .daemon_process import Daemon

CLAUDE = {"Agentkernel-Owner": "mcp:claude"}
CODEX = {"Agentkernel-Owner": "mcp:codex"}


@pytest.fixture
def claudes(daemon: Daemon) -> Iterator[str]:
    status, made = daemon.request("POST", "/v1/sandboxes", {"name": "mine"}, CLAUDE)
    assert status == 201, made
    yield made["id"]
    assert daemon.request("DELETE", f"/v1/sandboxes/{made['id']}", headers=CLAUDE)[0] == 204


def listed(daemon: Daemon, headers: dict[str, str]) -> list[str]:
    _, body = daemon.request("GET", "/v1/sandboxes", headers=headers)
    return [entry["id"] for entry in body["sandboxes"]]


def test_an_owner_has_its_own_names_and_list(daemon: Daemon, claudes: str) -> None:
    status, other = daemon.request("POST", "/v1/sandboxes", {"name": "mine"}, CODEX)
    assert status == 201 and other["id"] != claudes
    assert listed(daemon, CLAUDE) == [claudes]
    assert listed(daemon, CODEX) == [other["id"]]
    assert claudes not in listed(daemon, {})
    assert daemon.request("DELETE", "/v1/sandboxes/mine", headers=CODEX)[0] == 204
    assert listed(daemon, CLAUDE) == [claudes]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/stop", {}),
        ("POST", "/start", {}),
        ("POST", "/extend", {"ttl_seconds": 5}),
        ("POST", "/probe", {}),
        ("POST", "/exec", {"argv": ["true"]}),
        ("POST", "/jobs", {"argv": ["true"]}),
        ("GET", "/jobs", None),
        ("GET", "/files?path=/etc/passwd", None),
        ("PUT", "/files?path=/tmp/x", b"x"),
        ("GET", "/list?path=/", None),
        ("GET", "/tree?path=/etc", None),
    ],
)
def test_anothers_sandbox_does_not_exist(
    daemon: Daemon, claudes: str, method: str, path: str, body: Any
) -> None:
    status, refused = daemon.request(method, f"/v1/sandboxes/{claudes}{path}", body, CODEX)
    assert (status, refused["code"]) == (404, "not_found")


def test_anothers_job_does_not_exist(daemon: Daemon, claudes: str) -> None:
    path = f"/v1/sandboxes/{claudes}/jobs"
    status, job = daemon.request("POST", path, {"argv": ["sleep", "60"]}, CLAUDE)
    assert status == 201
    status, refused = daemon.request("GET", f"/v1/jobs/{job['id']}", headers=CODEX)
    assert (status, refused["detail"]) == (404, f"no job {job['id']}"), "as if it had never been"
    assert claudes not in str(refused)
    kill = f"/v1/jobs/{job['id']}/signal"
    assert daemon.request("POST", kill, {"kill": True}, CODEX)[0] == 404
    assert daemon.request("GET", f"/v1/jobs/{job['id']}", headers=CLAUDE)[1]["state"] == "running"


def test_events_are_the_owners(daemon: Daemon, claudes: str) -> None:
    def told(headers: dict[str, str]) -> bool:
        _, text = daemon.request("GET", "/v1/events?after=0&follow=0", headers=headers)
        return claudes.encode() in text

    assert told(CLAUDE) and not told(CODEX)
    assert told({}), "the user of the machine hears of everything"


@pytest.mark.parametrize("image", ["/", "/etc", "."])
def test_who_acts_for_another_shows_no_directory_of_the_host(daemon: Daemon, image: str) -> None:
    for path, body in (
        ("/v1/sandboxes", {"image": image}),
        ("/v1/run", {"image": image, "argv": ["true"]}),
    ):
        status, refused = daemon.request("POST", path, body, CLAUDE)
        assert (status, refused["code"]) == (403, "policy_denied")
        assert refused["details"] == {"needed": "host-paths"}


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.0/16", "::1", "localhost"])
def test_who_acts_for_another_reaches_nothing_of_the_machines_own_network(
    daemon: Daemon, claudes: str, host: str
) -> None:
    rule = {"host": host, "ports": [22]}  # without `private`: the address says so by itself
    path = f"/v1/sandboxes/{claudes}/network"
    for method, where, body in (
        ("POST", "/v1/sandboxes", {"network": {"rules": [rule]}}),
        ("POST", "/v1/run", {"network": {"rules": [rule]}, "argv": ["true"]}),
        ("PUT", path, {"rules": [rule]}),
        ("PUT", path, {"phases": {"agent": {"rules": [rule]}}}),
        ("POST", f"{path}/rules", {"rule": rule}),
        ("POST", f"{path}/rules", {"rule": {**rule, "action": "deny"}}),
    ):
        status, refused = daemon.request(method, where, body, CLAUDE)
        assert (status, refused.get("details")) == (403, {"needed": "host-paths"}), (where, body)
    public = {"rule": {"host": "Example.ORG", "ports": [443]}}
    status, state = daemon.request("POST", f"{path}/rules", public, CLAUDE)
    assert status == 200, state
    assert state["phases"]["default"]["rules"][0]["host"] == "example.org", "one form is compared"


def test_who_acts_for_another_does_not_end_the_daemon(daemon: Daemon) -> None:
    status, refused = daemon.request("POST", "/v1/shutdown", {}, CLAUDE)
    assert (status, refused["code"]) == (403, "policy_denied")


@pytest.mark.parametrize("name", ["", " ", "UPPER", "a b", "ü", "x" * 129, "../x"])
def test_an_owner_is_a_name(daemon: Daemon, name: str) -> None:
    headers = {"Agentkernel-Owner": name.encode("utf-8").decode("latin-1")}
    status, refused = daemon.request("GET", "/v1/sandboxes", headers=headers)
    assert (status, refused["code"]) == (400, "invalid_input")


def test_run_belongs_to_its_owner(daemon: Daemon) -> None:
    def made(headers: dict[str, str]) -> int:
        _, text = daemon.request("GET", "/v1/events?after=0&follow=0", headers=headers)
        count: int = text.count(b"event: sandbox.created")
        return count

    before = made(CLAUDE), made(CODEX)
    status, result = daemon.request("POST", "/v1/run", {"shell": "echo mine"}, CLAUDE)
    assert (status, result["stdout"]) == (200, "mine\n")
    assert (made(CLAUDE), made(CODEX)) == (before[0] + 1, before[1])
