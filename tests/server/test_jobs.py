"""Jobs over HTTP: they outlive whoever listens, and the daemon."""

from __future__ import annotations

from typing import Any

from .daemon_process import Daemon, eventually


def start(daemon: Daemon, id: str, **command: Any) -> str:
    status, job = daemon.request("POST", f"/v1/sandboxes/{id}/jobs", command)
    assert status == 201, job
    assert isinstance(job["id"], str)
    return job["id"]


def ended(daemon: Daemon, job: str) -> bool:
    return bool(daemon.request("GET", f"/v1/jobs/{job}")[1]["state"] == "ended")


def test_a_job_is_shown_and_ends(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, shell="echo a; echo b >&2; exit 4", env={"SECRET": "s"})
    eventually(lambda: ended(daemon, job))
    status, shown = daemon.request("GET", f"/v1/jobs/{job}")
    assert (shown["status"]["outcome"], shown["status"]["exit_code"]) == ("exited", 4)
    assert "env" not in shown
    listed = daemon.request("GET", f"/v1/sandboxes/{sandbox}/jobs")[1]["jobs"]
    assert [entry["id"] for entry in listed] == [job]
    frames = daemon.stream(f"/v1/jobs/{job}/attach")
    out, err, end = frames.rest()
    assert (out, err, end["exit_code"]) == (b"a\n", b"b\n", 4)
    frames.close()


def test_input_and_signals(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, shell="read x; echo got $x; sleep 60", stdin=True)
    frames = daemon.stream(f"/v1/jobs/{job}/attach")
    frames.send(b"word\n")
    while (message := frames.next())[0] == 3:
        assert message[1]["event"] == "started"
    assert message == (1, b"got word\n")
    frames.vanish()
    assert not ended(daemon, job)
    status, problem = daemon.request("POST", f"/v1/jobs/{job}/signal", {})
    assert (status, problem["code"]) == (400, "invalid_input")
    assert daemon.request("POST", f"/v1/jobs/{job}/signal", {"signal": 15})[0] == 204
    eventually(lambda: ended(daemon, job))
    status = daemon.request("GET", f"/v1/jobs/{job}")[1]["status"]
    assert (status["outcome"], status["signal"]) == ("signaled", 15)


def test_kill(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, shell="trap '' TERM; sleep 60")
    assert daemon.request("POST", f"/v1/jobs/{job}/signal", {"kill": True})[0] == 204
    eventually(lambda: ended(daemon, job))


def test_offsets_are_where_output_goes_on(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, shell="printf 0123456789")
    eventually(lambda: ended(daemon, job))
    frames = daemon.stream(f"/v1/jobs/{job}/attach?stdout_offset=4")
    out, _, _ = frames.rest()
    assert out == b"456789"
    frames.close()
