"""Sandboxes over HTTP, and errors as answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from agentkernel.audit.reading import newest

from .daemon_process import Daemon


def test_version_and_status(daemon: Daemon) -> None:
    status, version = daemon.request("GET", "/v1/version")
    assert status == 200
    assert version["api"] == 1
    assert version["state_dir"] == str(daemon.state_dir)
    info = json.loads((daemon.state_dir / "daemon.json").read_text())
    assert info["pid"] == version["pid"] == daemon.pid
    status, body = daemon.request("GET", "/v1/status")
    assert status == 200
    assert body["uptime_seconds"] > 0
    assert body["memory_bytes"] > 1 << 20


def test_a_whole_life(daemon: Daemon) -> None:
    status, made = daemon.request(
        "POST",
        "/v1/sandboxes",
        {"name": "life", "labels": {"team": "web"}, "ephemeral": False, "ttl_seconds": 600},
    )
    assert (status, made["state"], made["name"]) == (201, "running", "life")
    assert daemon.exec("life", "echo kept > /root/file")["exit_code"] == 0
    shown = daemon.request("GET", f"/v1/sandboxes/{made['id']}")[1]
    assert {"what", "value", "enforced_by"} <= shown["effective"][0].keys()
    listed = daemon.request("GET", "/v1/sandboxes?label=team=web&state=running")[1]
    assert [entry["id"] for entry in listed["sandboxes"]] == [made["id"]]
    assert daemon.request("GET", "/v1/sandboxes?label=team=api")[1]["sandboxes"] == []
    status, longer = daemon.request("POST", "/v1/sandboxes/life/extend", {"ttl_seconds": 6000})
    assert status == 200 and longer["expires_at"] > made["expires_at"] + 3000
    status, stopped = daemon.request("POST", "/v1/sandboxes/life/stop", {"grace_seconds": 0})
    assert (status, stopped["state"]) == (200, "stopped")
    known = daemon.request("GET", "/v1/sandboxes/life")[1]
    assert known["effective"] == shown["effective"], "what held in its last run"
    assert known["usage"]["cpu_seconds"] >= shown["usage"]["cpu_seconds"] > 0
    status, body = daemon.request("POST", "/v1/sandboxes/life/exec", {"argv": ["true"]})
    assert (status, body["code"]) == (409, "conflict")
    status, started = daemon.request("POST", "/v1/sandboxes/life/start")
    assert (status, started["state"]) == (200, "running")
    assert daemon.exec("life", "cat /root/file")["stdout"] == "kept\n"
    assert daemon.request("DELETE", "/v1/sandboxes/life") == (204, b"")
    status, body = daemon.request("GET", "/v1/sandboxes/life")
    assert (status, body["code"]) == (404, "not_found")


def test_a_repeated_create_gives_the_same(daemon: Daemon) -> None:
    key = {"Idempotency-Key": "create-1"}
    body = {"labels": {"a": "1", "b": "2"}}
    again = {"labels": {"b": "2", "a": "1"}}
    with ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(daemon.request, "POST", "/v1/sandboxes", wanted, key)
            for wanted in (body, again, body)
        ]
        answers = [call.result() for call in calls]
    assert sorted(status for status, _ in answers) == [200, 200, 201]
    assert {answer["state"] for _, answer in answers} == {"running"}
    (id,) = {answer["id"] for _, answer in answers}
    status, other = daemon.request("POST", "/v1/sandboxes", {"labels": {}}, key)
    assert (status, other["code"]) == (409, "conflict")
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


def test_one_that_is_asked_for_is_kept_unless_it_is_to_be_ephemeral(daemon: Daemon) -> None:
    for body, ephemeral, at_end in (({}, False, "stop"), ({"ephemeral": True}, True, "remove")):
        status, made = daemon.request("POST", "/v1/sandboxes", body)
        assert (status, made["ephemeral"]) == (201, ephemeral)
        assert (made["on_ttl"], made["on_idle"]) == (at_end, at_end)
        daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")
    status, problem = daemon.request(
        "POST", "/v1/sandboxes", {"ephemeral": True, "ttl_seconds": 9, "on_ttl": "stop"}
    )
    assert (status, problem["code"]) == (400, "invalid_input")


def test_a_name_is_taken_once(daemon: Daemon) -> None:
    id = daemon.create(name="taken")
    status, body = daemon.request("POST", "/v1/sandboxes", {"name": "taken"})
    assert (status, body["code"]) == (409, "conflict")
    daemon.request("DELETE", f"/v1/sandboxes/{id}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/sandboxes/nobody", None, 404, "not_found"),
        ("DELETE", "/v1/sandboxes/nobody", None, 404, "not_found"),
        ("POST", "/v1/sandboxes/nobody/exec", {"argv": ["true"]}, 404, "not_found"),
        ("GET", "/v1/jobs/nobody", None, 404, "not_found"),
        ("GET", "/v1/nowhere", None, 404, "not_found"),
        ("GET", "/v1/sandboxes/", None, 404, "not_found"),
        ("PATCH", "/v1/sandboxes", None, 405, "invalid_input"),
        ("POST", "/v1/sandboxes", b"{", 400, "invalid_input"),
        ("POST", "/v1/sandboxes", b"\xff\xfe", 400, "invalid_input"),
        ("POST", "/v1/sandboxes", b"[" * 100_000, 400, "invalid_input"),
        ("POST", "/v1/sandboxes", {"name": "No Name"}, 400, "invalid_input"),
        ("POST", "/v1/sandboxes", {"memory_bytes": 1}, 400, "invalid_input"),
        ("POST", "/v1/sandboxes", {"ttl_seconds": -1}, 400, "invalid_input"),
        ("POST", "/v1/sandboxes", {"image": "/no/such/place"}, None, None),
        ("POST", "/v1/run", {"argv": ["a"], "shell": "b"}, 400, "invalid_input"),
        ("POST", "/v1/run", {}, 400, "invalid_input"),
        ("POST", "/v1/run", {"argv": []}, 400, "invalid_input"),
        ("POST", "/v1/run", {"argv": ["a\0b"]}, 400, "invalid_input"),
        ("POST", "/v1/run", {"shell": "a", "stdin_b64": "%"}, 400, "invalid_input"),
        ("GET", "/v1/sandboxes?limit=0", None, 400, "invalid_input"),
        ("GET", "/v1/sandboxes?limit=a", None, 400, "invalid_input"),
        ("GET", "/v1/sandboxes?what=a", None, 400, "invalid_input"),
        ("GET", "/v1/sandboxes?label=a", None, 400, "invalid_input"),
        ("GET", "/v1/sandboxes?after=1&after=2", None, 400, "invalid_input"),
        ("GET", "/v1/events?after=x", None, 400, "invalid_input"),
    ],
)
def test_mistakes_have_their_status(
    daemon: Daemon, method: str, path: str, body: Any, status: int | None, code: str | None
) -> None:
    got, problem = daemon.request(method, path, body)
    assert got == problem["status"] >= 400
    if status is not None:
        assert (got, problem["code"]) == (status, code), problem
    assert problem["type"] == "about:blank"
    assert problem["detail"] and problem["title"]
    assert "Traceback" not in json.dumps(problem)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"labls": {}}, "$"),
        ({"labels": {"a": 1}}, "$.labels[...]"),
        ({"cpus": "two"}, "$.cpus"),
    ],
)
def test_an_unknown_field_is_named_with_its_place(
    daemon: Daemon, body: dict[str, Any], path: str
) -> None:
    status, problem = daemon.request("POST", "/v1/sandboxes", body)
    assert (status, problem["code"]) == (400, "invalid_input")
    assert problem["details"]["path"] == path


def test_bodies_are_bounded(daemon: Daemon) -> None:
    for path, field, mebibytes in (("sandboxes", "image", 1), ("run", "stdin", 16)):
        status, problem = daemon.request("POST", f"/v1/{path}", {field: "x" * (mebibytes << 20)})
        assert (status, problem["status"]) == (413, 413)
        assert f"more than {mebibytes} MiB" in problem["detail"]
    connection = daemon.connection()
    pieces = iter([b" " * (1 << 19)] * 3)
    connection.request("POST", "/v1/sandboxes", body=pieces, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_pages_of_the_web_are_refused(daemon: Daemon) -> None:
    status, problem = daemon.request("GET", "/v1/version", headers={"Origin": "http://a.example"})
    assert (status, problem["code"]) == (403, "policy_denied")
    with pytest.raises(InvalidStatus) as refusal:
        daemon.stream("/v1/run/stream", origin="http://a.example")
    assert refusal.value.response.status_code == 403


def test_a_connection_serves_many_requests(daemon: Daemon) -> None:
    connection = daemon.connection()
    connection.connect()
    sock = connection.sock
    for _ in range(20):
        connection.request("GET", "/v1/version")
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        assert connection.sock is sock
    connection.request("POST", "/v1/run", body=b"{}")
    assert connection.getresponse().read()
    assert connection.sock is sock
    connection.close()


@pytest.mark.parametrize(
    "noise",
    [
        b"\0" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/run HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/run HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://[::1 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /%ff%00?\xff HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/run/stream HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: short\r\n\r\n",
        b"GET /v1/version HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 17),
        b"GET /" + b"y" * (1 << 17),
    ],
)
def test_noise_is_answered_or_cut_off(daemon: Daemon, noise: bytes) -> None:
    with daemon.raw() as sock:
        sock.settimeout(5)
        answer = b""
        try:
            sock.sendall(noise)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b"Traceback" not in answer


def test_headers_are_bounded(daemon: Daemon) -> None:
    status, _ = daemon.request("GET", "/v1/version", headers={"X": "y" * 30_000})
    assert status == 200
    with daemon.raw() as sock:
        sock.sendall(b"GET /v1/version HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70_000)
        assert sock.recv(4096).startswith(b"HTTP/1.1 431 ")


_STRANGER = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
try:
    sock.sendall(b"GET /v1/version HTTP/1.1\\r\\nhost: a\\r\\n\\r\\n")
    print(sock.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0")
def test_a_process_of_another_user_is_turned_away(own_daemon: Daemon, tmp_path: Path) -> None:
    """With the modes that keep it out made wide on purpose: the peer's uid alone decides."""
    path = own_daemon.state_dir / "api.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    assert own_daemon.state_dir.stat().st_mode & 0o777 == 0o700

    def ask(*prefix: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*prefix, sys.executable, "-S", "-c", _STRANGER, "api.sock"],
            cwd=own_daemon.state_dir,
            capture_output=True,
            timeout=20,
        )

    stranger = ("setpriv", "--reuid", "65534", "--clear-groups")
    assert b"PermissionError" in ask(*stranger).stderr
    path.chmod(0o666)
    own_daemon.state_dir.chmod(0o755)
    try:
        assert ask(*stranger).stdout == b"b''\n"
        assert b"200 OK" in ask().stdout
    finally:
        own_daemon.state_dir.chmod(0o700)
        path.chmod(0o600)
    assert "uid 65534 was turned away" in own_daemon.log()
    found, _ = newest(own_daemon.state_dir / "audit", lambda entry: entry.action == "connect")
    (denied,) = (line.entry for line in found)
    assert denied.result == "denied" and denied.actor and denied.actor.uid == 65534


def test_probe(daemon: Daemon) -> None:
    made = daemon.request("POST", "/v1/sandboxes", {"name": "probed"})[1]
    status, body = daemon.request("POST", "/v1/sandboxes/probed/probe")
    assert (status, body["fit"]) == (200, True)
    assert {"name", "group", "opens", "state", "expected", "reason", "detail", "answers"} == set(
        body["findings"][0]
    )
    lines, _ = newest(
        daemon.state_dir / "audit",
        lambda entry: entry.action == "sandbox.probe" and entry.sandbox is not None,
    )
    assert [line.entry.sandbox for line in lines] == [made["id"]] * 2, "its beginning and its end"
    status, problem = daemon.request("POST", "/v1/sandboxes/probed/probe", {"more": 1})
    assert (status, problem["code"]) == (400, "invalid_input")
    daemon.request("POST", "/v1/sandboxes/probed/stop", {"grace_seconds": 0})
    status, problem = daemon.request("POST", "/v1/sandboxes/probed/probe")
    assert (status, problem["code"]) == (409, "conflict")
    daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")
    assert daemon.request("POST", "/v1/sandboxes/probed/probe")[0] == 404
