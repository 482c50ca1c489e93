"""The daemon's own life: one per state, an orderly end, nothing lost by a bad one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from .daemon_process import Daemon, eventually


def test_a_restart_keeps_sandboxes(own_daemon: Daemon) -> None:
    id = own_daemon.create(name="kept", ephemeral=False)
    own_daemon.exec(id, "echo 1 > /tmp/memory")
    assert own_daemon.terminate() == 0
    own_daemon.start()
    assert own_daemon.exec("kept", "cat /tmp/memory")["stdout"] == "1\n"
    own_daemon.kill()
    own_daemon.start()
    assert own_daemon.exec("kept", "cat /tmp/memory")["stdout"] == "1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_leaves_no_files(own_daemon: Daemon, number: int) -> None:
    assert own_daemon.terminate(number) == 0
    left = set(os.listdir(own_daemon.state_dir))
    assert not {"api.sock", "daemon.json", "state.db-wal"} & left


def test_it_ends_when_asked_over_http(own_daemon: Daemon) -> None:
    assert own_daemon.request("POST", "/v1/shutdown")[0] == 202
    assert own_daemon.wait() == 0


def test_a_second_one_refuses(own_daemon: Daemon) -> None:
    second = own_daemon.popen()
    assert second.wait(20) == 125
    assert second.stdout
    second.stdout.close()
    assert f"process {own_daemon.pid} owns the state" in own_daemon.log()
    assert own_daemon.request("GET", "/v1/version")[1]["pid"] == own_daemon.pid


def test_a_socket_that_was_left_is_replaced(own_daemon: Daemon) -> None:
    own_daemon.kill()
    assert (own_daemon.state_dir / "api.sock").exists()
    own_daemon.start()
    assert own_daemon.request("GET", "/v1/version")[1]["pid"] == own_daemon.pid


def test_its_end_is_told_to_whoever_is_listening(own_daemon: Daemon) -> None:
    id = own_daemon.create()
    frames = own_daemon.stream(f"/v1/sandboxes/{id}/exec/stream", {"argv": ["sleep", "60"]})
    frames.event("started")
    run = own_daemon.stream("/v1/run/stream", {"command": {"argv": ["sleep", "60"]}})
    run.event("started")
    # One that does not read can't hold it up.
    deaf = own_daemon.stream(f"/v1/sandboxes/{id}/exec/stream", {"argv": ["yes"]}, max_queue=1)
    events = own_daemon.connection()
    events.request("GET", "/v1/events")
    answer = events.getresponse()
    answers: list[tuple[int, Any]] = []
    call = threading.Thread(
        target=lambda: answers.append(
            own_daemon.request("POST", f"/v1/sandboxes/{id}/exec", {"argv": ["sleep", "4250"]})
        )
    )
    call.start()
    eventually(lambda: "4250" in own_daemon.exec(id, "cat /proc/[0-9]*/cmdline")["stdout"])
    assert own_daemon.terminate() == 0
    for stream in (frames, run):
        error = stream.event("error")
        assert (error["code"], error["retryable"]) == ("daemon_unavailable", True)
        stream.close()
    assert b"event: error" in answer.read()
    events.close()
    call.join()
    ((status, problem),) = answers
    assert (status, problem["code"]) == (503, "daemon_unavailable")
    deaf.vanish()
    own_daemon.start()
    listed = own_daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"]
    assert [(entry["id"], entry["state"]) for entry in listed] == [(id, "running")]


def test_in_the_background(tmp_path: Path) -> None:
    environment = {**os.environ, "AGENTKERNEL_STATE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "agentkernel", "serve"]

    def serve() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    first = serve()
    info = json.loads((tmp_path / "daemon.json").read_text())
    try:
        assert (first.returncode, first.stderr) == (0, "")
        assert f"pid {info['pid']}" in first.stdout
        second = serve()
        assert second.returncode == 125
        assert f"process {info['pid']} owns the state" in second.stderr
        assert "serving" in (tmp_path / "daemon.log").read_text()
    finally:
        os.kill(info["pid"], signal.SIGTERM)
        eventually(lambda: not (tmp_path / "api.sock").exists())
