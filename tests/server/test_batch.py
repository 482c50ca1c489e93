"""Many commands in one request: in order, in parallel, each alone, and none left behind."""

from __future__ import annotations

import json
from typing import Any

from .daemon_process import Daemon, eventually


def batch(daemon: Daemon, *commands: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    status, body = daemon.request("POST", "/v1/run/batch", {"commands": commands, **more})
    assert status == 200, body
    results = body["results"]
    assert isinstance(results, list)
    return results


def test_answers_are_in_order_whatever_ends_first(daemon: Daemon) -> None:
    commands: list[dict[str, Any]] = [
        {"shell": "sleep 0.3; echo slow"},
        {"argv": ["cat"], "stdin": "given"},
        {"shell": "exit 3", "env": {"A": "b"}},
        {"argv": ["/no/such/program"]},
    ]
    results = [entry["result"] for entry in batch(daemon, *commands, parallel=4)]
    assert [result.get("stdout") for result in results[:2]] == ["slow\n", "given"]
    assert [result["exit_code"] for result in results] == [0, 0, 3, None]
    assert results[3]["outcome"] == "not_started"
    assert daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []


def test_each_has_a_sandbox_of_its_own(daemon: Daemon) -> None:
    command = {"shell": "test ! -e /mine && touch /mine"}
    results = batch(daemon, *[command] * 6, parallel=2)
    assert [entry["result"]["exit_code"] for entry in results] == [0] * 6


def test_no_more_at_a_time_than_asked_for(daemon: Daemon) -> None:
    connection = daemon.connection()
    body = {"commands": [{"argv": ["sleep", "60"]}] * 5, "parallel": 2}
    connection.request("POST", "/v1/run/batch", json.dumps(body).encode())

    def running() -> int:
        return len(daemon.request("GET", "/v1/sandboxes?state=running")[1]["sandboxes"])

    eventually(lambda: running() == 2)
    assert len(daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"]) == 2
    connection.close()  # who goes away ends them all
    eventually(lambda: daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == [])


def test_what_one_meets_is_told_in_its_place(daemon: Daemon) -> None:
    results = batch(
        daemon,
        {"argv": ["true"]},
        {"argv": ["true"], "env": {"": "no name"}},
        {"argv": ["true"], "cwd": "/no/such/directory"},
    )
    assert results[0]["result"]["exit_code"] == 0
    assert "result" not in results[1]
    assert results[1]["error"]["code"] == "invalid_input"
    assert results[2]["result"]["outcome"] == "not_started"


def test_a_spec_that_no_sandbox_can_have(daemon: Daemon) -> None:
    results = batch(daemon, {"argv": ["true"]}, spec={"image": "/nowhere/at/all"})
    assert results[0]["error"]["code"] in ("not_found", "invalid_input")


def test_a_body_that_is_wrong_runs_nothing(daemon: Daemon) -> None:
    good = {"argv": ["true"]}
    bodies: tuple[dict[str, Any], ...] = (
        {"commands": []},
        {"commands": [good] * 65},
        {"commands": [good], "parallel": 17},
        {"commands": [good, {"argv": ["a"], "shell": "b"}]},
        {"commands": [good, {"argv": ["a"], "stdin_b64": "?"}]},
        {"commands": [{**good, "output_bytes": (1 << 20) + 1}]},
        {"commands": [good], "odd": 1},
    )
    for body in bodies:
        status, problem = daemon.request("POST", "/v1/run/batch", body)
        assert (status, problem["code"]) == (400, "invalid_input")


def test_output_is_bounded(daemon: Daemon) -> None:
    (entry,) = batch(daemon, {"shell": "head -c 300000 /dev/zero | tr '\\0' x"})
    result = entry["result"]
    assert len(result["stdout"]) == 256 << 10 and result["truncated"]
    assert result["dropped_bytes"] == 300_000 - (256 << 10)
