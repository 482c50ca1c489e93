"""What can change of a sandbox that exists, and what is known of it meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .daemon_process import Daemon, eventually


def update(daemon: Daemon, id: str, **changes: Any) -> dict[str, Any]:
    status, body = daemon.request("PATCH", f"/v1/sandboxes/{id}", changes)
    assert status == 200, body
    assert isinstance(body, dict)
    return body


def test_what_is_left_out_stays(daemon: Daemon) -> None:
    id = daemon.create(name="before", labels={"a": "1", "b": "2"}, idle_seconds=500)
    body = update(daemon, id, name="after", labels={"b": None, "c": "3"})
    assert (body["name"], body["labels"]) == ("after", {"a": "1", "c": "3"})
    assert body["idle_seconds"] == 500 and body["on_idle"] == "stop"
    found = daemon.request("GET", "/v1/sandboxes?label=c=3")[1]["sandboxes"]
    assert [sandbox["id"] for sandbox in found] == [id]
    assert daemon.request("GET", "/v1/sandboxes?label=b=2")[1]["sandboxes"] == []
    assert daemon.request("GET", "/v1/sandboxes/before")[0] == 404
    assert update(daemon, "after", name=None, idle_seconds=None)["name"] is None
    unchanged = update(daemon, id)
    assert unchanged["updated_at"] == update(daemon, id)["updated_at"]
    assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204


def test_clocks_begin_anew_and_are_taken_away(daemon: Daemon, sandbox: str) -> None:
    body = update(daemon, sandbox, ttl_seconds=1000)
    assert 0 < body["expires_at"] - time.time() <= 1000
    body = update(daemon, sandbox, ttl_seconds=None)
    assert (body["ttl_seconds"], body["expires_at"]) == (None, None)


def test_a_clock_that_was_given_later_ends_it(daemon: Daemon) -> None:
    id = daemon.create()
    update(daemon, id, ttl_seconds=0.2, on_ttl="remove")
    eventually(lambda: daemon.request("GET", f"/v1/sandboxes/{id}")[0] == 404)


def test_it_is_an_event_and_in_the_log(daemon: Daemon, sandbox: str) -> None:
    update(daemon, sandbox, labels={"token": "hidden"}, ttl_seconds=None)
    text = daemon.request("GET", f"/v1/sandboxes/{sandbox}/logs")[1].decode()
    assert "event: sandbox.updated" in text and '["labels","ttl_seconds"]' in text
    entries = daemon.request("GET", f"/v1/audit?sandbox={sandbox}")[1]["entries"]
    lines = [entry for entry in entries if entry["action"] == "sandbox.update"]
    assert lines[0]["args"]["ttl_seconds"] == "none"
    assert "hidden" not in str(lines) and lines[-1]["result"] == "ok"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"name": "Not A Name"}, 400),
        ({"ttl_seconds": 0}, 400),
        ({"on_ttl": "explode"}, 400),
        ({"labels": {"": "x"}}, 400),
        ({"labels": {"k": 1}}, 400),
        ({"image": "/"}, 400),
        ({"on_ttl": None}, 400),
    ],
)
def test_what_is_no_change(
    daemon: Daemon, sandbox: str, changes: dict[str, Any], status: int
) -> None:
    before = daemon.request("GET", f"/v1/sandboxes/{sandbox}")[1]
    assert daemon.request("PATCH", f"/v1/sandboxes/{sandbox}", changes)[0] == status
    after = daemon.request("GET", f"/v1/sandboxes/{sandbox}")[1]
    assert before["labels"] == after["labels"] and before["updated_at"] == after["updated_at"]


def test_a_name_that_another_one_has(daemon: Daemon, sandbox: str) -> None:
    other = daemon.create(name="taken")
    status, problem = daemon.request("PATCH", f"/v1/sandboxes/{sandbox}", {"name": "taken"})
    assert (status, problem["code"]) == (409, "conflict")
    assert daemon.request("DELETE", f"/v1/sandboxes/{other}")[0] == 204
    assert update(daemon, sandbox, name="taken")["name"] == "taken"  # the control: it is free now


def test_files_in_memory_can_not_be_stopped(daemon: Daemon) -> None:
    id = daemon.create(ephemeral=True)
    assert daemon.request("PATCH", f"/v1/sandboxes/{id}", {"on_ttl": "stop"})[0] == 400
    assert update(daemon, id, on_ttl="remove")["on_ttl"] == "remove"
    assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204


def test_another_owner_finds_nothing(daemon: Daemon, sandbox: str) -> None:
    theirs = {"Agentkernel-Owner": "mcp:somebody"}
    for method, path in (("PATCH", ""), ("GET", "/usage")):
        status, _ = daemon.request(method, f"/v1/sandboxes/{sandbox}{path}", {}, theirs)
        assert status == 404


def test_no_label_is_lost_between_two(daemon: Daemon, sandbox: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: update(daemon, sandbox, labels={f"n{n}": "x"}), range(24)))
    labels = daemon.request("GET", f"/v1/sandboxes/{sandbox}")[1]["labels"]
    assert labels == {f"n{n}": "x" for n in range(24)}


def test_usage_now_and_of_the_last_run(daemon: Daemon) -> None:
    id = daemon.create()
    daemon.exec(id, "true")
    body = daemon.request("GET", f"/v1/sandboxes/{id}/usage")[1]
    assert body["state"] == "running" and body["usage"]["counted_by"]
    assert daemon.request("POST", f"/v1/sandboxes/{id}/stop", {"grace_seconds": 0})[0] == 200
    stopped = daemon.request("GET", f"/v1/sandboxes/{id}/usage")[1]
    assert stopped["state"] == "stopped" and "usage" in stopped
    assert daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204


def test_logs_of_one_that_is_gone(daemon: Daemon) -> None:
    id = daemon.create()
    daemon.request("DELETE", f"/v1/sandboxes/{id}")
    status, text = daemon.request("GET", f"/v1/sandboxes/{id}/logs")
    assert status == 200
    kinds = [line[7:] for line in text.decode().splitlines() if line.startswith("event: ")]
    assert kinds == ["sandbox.created", "sandbox.removed"]
