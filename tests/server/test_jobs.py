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


def test_what_is_there_and_no_more(daemon: Daemon, sandbox: str) -> None:
    job = start(daemon, sandbox, shell="printf 0123; printf e >&2; sleep 60")
    whole = daemon.stream(f"/v1/jobs/{job}/attach")
    seen = b""
    while len(seen) < 5:  # it has written all of it
        channel, data = whole.next()
        seen += data if channel != 3 else b""
    whole.vanish()
    for query, out in (("follow=0", b"0123"), ("follow=0&stdout_offset=2&stderr_offset=1", b"23")):
        frames = daemon.stream(f"/v1/jobs/{job}/attach?{query}")
        got = b""
        end: dict[str, Any] = {}
        while not end:
            channel, data = frames.next()
            if channel == 1:
                got += data
            elif channel == 3 and data["event"] != "started":
                end = data
        assert got == out
        assert end == {"event": "caught_up", "stdout_offset": 4, "stderr_offset": 1}
        frames.close()
    assert not ended(daemon, job)
    daemon.request("POST", f"/v1/jobs/{job}/signal", {"kill": True})
    eventually(lambda: ended(daemon, job))
    frames = daemon.stream(f"/v1/jobs/{job}/attach?follow=0")
    out, err, end = frames.rest()
    assert (out, err, end["event"], end["outcome"]) == (b"0123", b"e", "exit", "signaled")
    frames.close()


def test_a_job_that_keeps_little_keeps_the_newest(daemon: Daemon, sandbox: str) -> None:
    job = start(
        daemon, sandbox, shell="head -c 3000000 /dev/zero; printf end", output_bytes=100_000
    )
    eventually(lambda: ended(daemon, job))
    frames = daemon.stream(f"/v1/jobs/{job}/attach")
    out, _, end = frames.rest()
    assert out.endswith(b"end") and 0 < len(out) <= 200_000
    assert (end["truncated"], end["dropped_bytes"]) == (True, 3_000_003 - len(out))
    assert daemon.request("GET", f"/v1/jobs/{job}")[1]["status"]["truncated"] is True
    frames.close()
