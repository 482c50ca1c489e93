"""The audit log of a real daemon: who asked, what was refused, and everything after `kill -9`."""

from __future__ import annotations

import http.client
import os
import threading
from contextlib import suppress
from pathlib import Path

from agentkernel.audit.entries import Entry
from agentkernel.audit.files import DIRECTORY
from agentkernel.audit.reading import newest
from agentkernel.audit.verify import verify

from .daemon_process import Daemon, eventually


def lines(daemon: Daemon) -> list[Entry]:
    found, _ = newest(log_of(daemon), lambda entry: True)
    return [line.entry for line in found]


def log_of(daemon: Daemon) -> Path:
    return daemon.state_dir / DIRECTORY


def about(daemon: Daemon, sandbox: str) -> list[tuple[str, str | None]]:
    return [
        (line.action, line.code or line.result) for line in lines(daemon) if line.sandbox == sandbox
    ]


def test_who_asked(daemon: Daemon, sandbox: str) -> None:
    daemon.request(
        "POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]}, {"User-Agent": "tool\x80/1.0"}
    )
    begin, end = [line for line in lines(daemon) if line.sandbox == sandbox][-2:]
    for line in (begin, end):
        assert line.actor
        assert (line.actor.door, line.actor.owner) == ("socket", "local")
        assert (line.actor.uid, line.actor.pid) == (os.getuid(), os.getpid())
        assert line.actor.client == "tool\x80/1.0"
    assert end.details["exit_code"] == 0


def test_streams_and_jobs_and_files(daemon: Daemon, sandbox: str) -> None:
    frames = daemon.stream(f"/v1/sandboxes/{sandbox}/exec/stream", {"argv": ["sh", "-c", "exit 4"]})
    frames.rest()
    frames.close()
    _, job = daemon.request("POST", f"/v1/sandboxes/{sandbox}/jobs", {"argv": ["echo", "job"]})
    frames = daemon.stream(f"/v1/jobs/{job['id']}/attach")
    assert frames.rest()[0] == b"job\n"
    frames.close()
    daemon.request("PUT", f"/v1/sandboxes/{sandbox}/files?path=/tmp/f", b"content of a file")
    daemon.request("GET", f"/v1/sandboxes/{sandbox}/files?path=/tmp/f")
    daemon.request("GET", f"/v1/sandboxes/{sandbox}/stat?path=/tmp/f")
    daemon.request("GET", f"/v1/sandboxes/{sandbox}/files?path=/nowhere")
    expected = [
        ("sandbox.create", "ok"), ("exec", "ok"), ("job.start", "ok"), ("job.attach", "ok"),
        ("file.write", "ok"), ("file.read", "ok"), ("file.read", "file_not_found"),
    ]  # fmt: skip
    eventually(lambda: [found for found in about(daemon, sandbox) if found[1]] == expected)
    mine = [line for line in lines(daemon) if line.sandbox == sandbox]
    streamed = next(line for line in mine if line.action == "exec" and line.of)
    assert streamed.details["exit_code"] == 4 and streamed.actor
    assert streamed.actor.pid == os.getpid()
    attached = next(line for line in mine if line.action == "job.attach")
    assert attached.args["job"] == job["id"]
    written = next(line for line in mine if line.action == "file.write" and line.of)
    assert written.details["bytes"] == len(b"content of a file")
    for path in log_of(daemon).iterdir():
        assert b"content of a file" not in path.read_bytes()


def test_a_run_is_all_it_consists_of(daemon: Daemon) -> None:
    before = lines(daemon)[-1].seq
    status, _ = daemon.request("POST", "/v1/run", {"argv": ["true"]})
    assert status == 200
    new = [line for line in lines(daemon) if line.seq > before and line.result]
    assert [line.action for line in new] == ["sandbox.create", "exec", "sandbox.remove"]
    assert len({line.sandbox for line in new}) == 1


def test_a_client_that_leaves(daemon: Daemon, sandbox: str) -> None:
    connection = daemon.connection()
    connection.request("POST", f"/v1/sandboxes/{sandbox}/exec", b'{"argv": ["sleep", "100"]}')
    eventually(lambda: ("exec", None) in about(daemon, sandbox))
    connection.close()
    eventually(lambda: ("exec", "cancelled") in about(daemon, sandbox))


def test_what_was_refused(daemon: Daemon, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/exec"
    body = {"argv": ["true"]}
    status, _ = daemon.request("POST", path, body, {"Origin": "http://evil.example"})
    assert status == 403
    denied = lines(daemon)[-1]
    assert (denied.action, denied.result, denied.code) == ("request", "denied", "policy_denied")
    assert denied.args["path"] == path and denied.args["method"] == "POST"
    status, _ = daemon.request("POST", "/v1/sandboxes/nobody/exec", body)
    assert status == 404
    missing = lines(daemon)[-1]
    assert (missing.action, missing.code) == ("exec", "not_found")
    assert missing.args == {"asked": "nobody", "argv": ["true"]}
    # The control: the same request without the header is carried out.
    assert daemon.request("POST", path, body)[0] == 200
    assert about(daemon, sandbox)[-1] == ("exec", "ok")


def test_starting_and_ending(own_daemon: Daemon) -> None:
    earlier = sum(line.action == "kernel.start" for line in lines(own_daemon))
    own_daemon.request("POST", "/v1/shutdown")
    assert own_daemon.wait() == 0
    last = [(line.action, line.actor.door) for line in lines(own_daemon) if line.actor][-3:]
    assert last == [
        ("kernel.start", "daemon"), ("kernel.stop_asked", "socket"), ("kernel.stop", "daemon"),
    ]  # fmt: skip
    own_daemon.start()
    own_daemon.kill()
    own_daemon.start()
    started = [line for line in lines(own_daemon) if line.action == "kernel.start"]
    assert [line.args["after_crash"] for line in started[earlier:]] == [False, True]
    assert verify(log_of(own_daemon)).ok


def test_kill_in_a_burst_of_commands(own_daemon: Daemon) -> None:
    """Every command that was answered has both its lines; no line is half; the chain holds."""
    id = own_daemon.create(name="burst")
    answered: list[str] = []
    wanted = 0
    enough = threading.Event()

    def burst(worker: int) -> None:
        connection = own_daemon.connection()
        with suppress(OSError, http.client.HTTPException):
            for number in range(100_000):
                word = f"w{worker}n{number}"
                body = f'{{"argv": ["true", "{word}"]}}'.encode()
                connection.request("POST", f"/v1/sandboxes/{id}/exec", body)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 200 or b'"exit_code":0' not in content:
                    break
                answered.append(word)
                if len(answered) >= wanted:
                    enough.set()
        connection.close()

    for _ in range(2):
        enough.clear()
        answered_before = len(answered)
        wanted = answered_before + 150
        threads = [
            threading.Thread(target=burst, args=(10 * answered_before + number,))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(30)
        own_daemon.kill()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert len(answered) >= wanted
        mine = [line for line in lines(own_daemon) if line.sandbox == id]
        found = [line for line in mine if line.action == "exec"]
        begun = {line.args["argv"][1]: line.seq for line in found if line.of is None}
        ended = {line.of for line in found if line.of is not None}
        assert not [word for word in answered if begun.get(word) not in ended]
        assert verify(log_of(own_daemon)).ok
        own_daemon.start()
    assert verify(log_of(own_daemon)).ok
    assert own_daemon.exec(id, "echo on")["stdout"] == "on\n"
