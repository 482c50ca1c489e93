"""Commands to their end in one answer."""

from __future__ import annotations

import base64
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .daemon_process import Daemon, eventually


def processes(daemon: Daemon, id: str, command: str) -> int:
    """How many processes have this command line, from its start."""
    script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null"
    lines = daemon.exec(id, script)["stdout"].splitlines()
    return sum(line.startswith(command) for line in lines)


def test_what_a_command_says(daemon: Daemon, sandbox: str) -> None:
    result = daemon.exec(
        sandbox, 'cat; echo "$A" >&2; pwd; exit 7', stdin="é\n", env={"A": "b"}, cwd="/tmp"
    )
    assert (result["outcome"], result["exit_code"], result["signal"]) == ("exited", 7, None)
    assert (result["stdout"], result["stderr"]) == ("é\n/tmp\n", "b\n")
    assert result["truncated"] is False and result["dropped_bytes"] == 0
    assert result["usage"]["peak_memory_bytes"] > 0


def test_bytes_that_are_no_text(daemon: Daemon, sandbox: str) -> None:
    data = bytes(range(256))
    result = daemon.exec(sandbox, "cat", stdin_b64=base64.b64encode(data).decode())
    assert base64.b64decode(result["stdout_b64"]) == data
    assert "stdout" not in result and result["stderr"] == ""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"shell": "kill -TERM $$"}, {"outcome": "signaled", "signal": signal.SIGTERM}),
        ({"shell": "sleep 60", "timeout_seconds": 0.1}, {"outcome": "timeout"}),
        ({"argv": ["/no/such"]}, {"outcome": "not_started", "errno": "ENOENT"}),
    ],
)
def test_other_outcomes_have_no_exit_code(
    daemon: Daemon, sandbox: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    status, result = daemon.request("POST", f"/v1/sandboxes/{sandbox}/exec", body)
    assert status == 200
    assert expected.items() <= result.items()
    assert result["exit_code"] is None


def test_output_is_bounded_and_the_rest_counted(daemon: Daemon, sandbox: str) -> None:
    result = daemon.exec(sandbox, "head -c 100000 /dev/zero | tr '\\0' x", output_bytes=1000)
    assert result["stdout"] == "x" * 1000
    assert (result["truncated"], result["dropped_bytes"]) == (True, 99000)


def test_many_at_once(daemon: Daemon, sandbox: str) -> None:
    with ThreadPoolExecutor(64) as pool:
        calls = [pool.submit(daemon.exec, sandbox, f"sleep 0.2; echo {i}") for i in range(64)]
        assert [call.result()["stdout"] for call in calls] == [f"{i}\n" for i in range(64)]


def test_who_goes_away_ends_the_command(daemon: Daemon, sandbox: str) -> None:
    connection = daemon.connection()
    body = json.dumps({"argv": ["sleep", "4242"]})
    connection.request("POST", f"/v1/sandboxes/{sandbox}/exec", body=body)
    eventually(lambda: processes(daemon, sandbox, "sleep 4242") == 1)
    connection.close()
    eventually(lambda: processes(daemon, sandbox, "sleep 4242") == 0)


def sandboxes(daemon: Daemon) -> int:
    return len(daemon.request("GET", "/v1/sandboxes?limit=1000")[1]["sandboxes"])


def test_run_leaves_nothing(daemon: Daemon) -> None:
    before = sandboxes(daemon)
    status, result = daemon.request(
        "POST",
        "/v1/run",
        {"shell": 'echo "$A"; id -u; cat', "env": {"A": "b"}, "stdin": "in", "pids": 100},
    )
    assert status == 200
    assert (result["outcome"], result["stdout"]) == ("exited", "b\n0\nin")
    assert sandboxes(daemon) == before


def test_run_leaves_nothing_for_who_goes_away(daemon: Daemon) -> None:
    before = sandboxes(daemon)
    connection = daemon.connection()
    connection.request("POST", "/v1/run", body=json.dumps({"argv": ["sleep", "4242"]}))
    eventually(lambda: sandboxes(daemon) == before + 1)
    connection.close()
    eventually(lambda: sandboxes(daemon) == before)


def test_who_goes_away_at_any_moment_of_the_making(daemon: Daemon) -> None:
    """Every process of a sandbox that is given up ends at once, not when it is tired of waiting."""
    before = sandboxes(daemon)
    for step in range(20):
        connection = daemon.connection()
        connection.request("POST", "/v1/run", body=json.dumps({"argv": ["sleep", "4242"]}))
        time.sleep(step * 0.002)
        connection.close()
    # agentd itself would give up after 30 s.
    eventually(lambda: sandboxes(daemon) == before, seconds=20)


def test_run_out_of_memory(daemon: Daemon) -> None:
    status, result = daemon.request(
        "POST",
        "/v1/run",
        {"argv": ["python3", "-c", "b'x' * (1 << 30)"], "memory_bytes": 64 << 20},
    )
    if status == 422:
        pytest.skip(result["detail"])
    assert (result["outcome"], result["exit_code"]) == ("oom", None)


def test_a_timeout_of_more_than_the_protocol_holds(daemon: Daemon, sandbox: str) -> None:
    body = {"argv": ["true"], "timeout_seconds": 4_294_967}
    status, result = daemon.request("POST", f"/v1/sandboxes/{sandbox}/exec", body)
    assert (status, result["exit_code"]) == (200, 0)
    for path in ("exec", "jobs"):
        body = {"argv": ["true"], "timeout_seconds": 4_294_968}
        status, refused = daemon.request("POST", f"/v1/sandboxes/{sandbox}/{path}", body)
        assert (status, refused["code"]) == (400, "invalid_input")
        assert "49 days" in refused["detail"] and "leave it out" in refused["hint"]
