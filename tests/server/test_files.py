"""Files over HTTP."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pytest

from agentkernel.backends.local import idmaps

from .daemon_process import Daemon

HAS_SEVERAL_IDS = idmaps.is_host_root() or idmaps.find_subids() is not None


def test_there_and_back(daemon: Daemon, sandbox: str) -> None:
    data = os.urandom(5_000_000)
    at = f"/v1/sandboxes/{sandbox}"
    daemon.forget_peak()
    before = daemon.peak_memory()
    status, body = daemon.request("PUT", f"{at}/files?path=/tmp/a/b&parents=1&mode=640", data)
    assert (status, body) == (200, {"size": len(data)})
    status, content = daemon.request("GET", f"{at}/files?path=/tmp/a/b")
    assert status == 200
    assert hashlib.sha256(content).digest() == hashlib.sha256(data).digest()
    assert daemon.peak_memory() - before < 16 << 20
    content = daemon.request("GET", f"{at}/files?path=/tmp/a/b&offset=10&length=20")[1]
    assert content == data[10:30]
    entry = daemon.request("GET", f"{at}/stat?path=/tmp/a/b")[1]
    assert (entry["name"], entry["type"], entry["size"], entry["mode"]) == (
        "b", "file", len(data), 0o640,
    )  # fmt: skip
    assert daemon.request("PUT", f"{at}/files?path=/tmp/a/b&append=1", b"end")[0] == 200
    assert daemon.request("GET", f"{at}/files?path=/tmp/a/b&offset=5000000")[1] == b"end"


def test_directories(daemon: Daemon, sandbox: str) -> None:
    at = f"/v1/sandboxes/{sandbox}"
    assert daemon.request("POST", f"{at}/mkdir", {"path": "/tmp/d/e", "parents": True})[0] == 204
    assert daemon.request("PUT", f"{at}/files?path=/tmp/d/%ff", b"")[0] == 200
    assert daemon.request("POST", f"{at}/move", {"path": "/tmp/d/e", "to": "/tmp/d/f"})[0] == 204
    entries = daemon.request("GET", f"{at}/list?path=/tmp/d")[1]["entries"]
    assert [entry.get("name") or entry["name_b64"] for entry in entries] == ["f", "/w=="]
    assert daemon.request("GET", f"{at}/files?path=/tmp/d/%ff") == (200, b"")
    status, problem = daemon.request("DELETE", f"{at}/files?path=/tmp/d")
    assert status >= 400 and problem["details"]["errno_name"]
    assert daemon.request("DELETE", f"{at}/files?path=/tmp/d&recursive=1")[0] == 204
    status, problem = daemon.request("GET", f"{at}/stat?path=/tmp/d")
    assert (status, problem["code"]) == (404, "file_not_found")


@pytest.mark.parametrize(
    ("method", "query", "status", "code"),
    [
        ("GET", "files?path=/none", 404, "file_not_found"),
        ("GET", "files?path=/tmp", 422, "is_a_directory"),
        ("GET", "files?path=relative", 400, "invalid_input"),
        ("GET", "files", 400, "invalid_input"),
        ("GET", "files?path=/a%00b", 400, "invalid_input"),
        ("GET", "files?path=/etc/passwd&offset=-1", 400, "invalid_input"),
        ("PUT", "files?path=/tmp/x&mode=rw", 400, "invalid_input"),
        ("PUT", "files?path=/etc/passwd/x", 422, "not_a_directory"),
    ],
)
def test_mistakes(
    daemon: Daemon, sandbox: str, method: str, query: str, status: int, code: str
) -> None:
    got, problem = daemon.request(method, f"/v1/sandboxes/{sandbox}/{query}", b"" or None)
    assert (got, problem["code"]) == (status, code)


def test_an_upload_that_breaks_off_leaves_nothing(daemon: Daemon, sandbox: str) -> None:
    connection = daemon.connection()

    def pieces() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.request("PUT", f"/v1/sandboxes/{sandbox}/files?path=/tmp/half", body=pieces())
    connection.close()
    assert daemon.exec(sandbox, "ls -A /tmp")["stdout"] == ""


def test_a_reader_that_goes_away(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "head -c 50000000 /dev/zero > /tmp/big")
    connection = daemon.connection()
    connection.request("GET", f"/v1/sandboxes/{sandbox}/files?path=/tmp/big")
    assert connection.getresponse().read(1000)
    connection.close()
    assert daemon.exec(sandbox, "true")["exit_code"] == 0


def test_ranges(daemon: Daemon, sandbox: str) -> None:
    at = f"/v1/sandboxes/{sandbox}/files?path=/tmp/f"
    assert daemon.request("PUT", at, b"0123456789")[0] == 200
    for asked, status, content in (
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-30", 206, b"0123456789"),
        ("bytes=0-99", 206, b"0123456789"),
        ("bytes=4-2", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ):
        assert daemon.request("GET", at, headers={"Range": asked}) == (status, content), asked
    for asked in ("bytes=10-", "bytes=-0"):
        status, problem = daemon.request("GET", at, headers={"Range": asked})
        assert (status, problem["code"]) == (416, "invalid_input")
    twice = daemon.request("GET", f"{at}&offset=1", headers={"Range": "bytes=1-2"})
    assert (twice[0], twice[1]["code"]) == (400, "invalid_input")
    connection = daemon.connection()
    connection.request("GET", at, headers={"Range": "bytes=2-4"})
    assert connection.getresponse().getheader("Content-Range") == "bytes 2-4/10"
    connection.close()


def test_what_is_no_file_has_a_bounded_answer(daemon: Daemon, sandbox: str) -> None:
    at = f"/v1/sandboxes/{sandbox}/files"
    daemon.exec(sandbox, "mkfifo /tmp/fifo; ln -s /dev/zero /tmp/zero")
    for path in ("/tmp/fifo", "/dev/zero", "/tmp/zero", "/dev/tty", "/dev/stdin"):
        status, problem = daemon.request("GET", f"{at}?path={path}")
        assert status >= 400 and problem["code"].startswith("file_"), path
    status, problem = daemon.request("PUT", f"{at}?path=/tmp/fifo&append=1", b"x")
    assert (status, problem["code"]) == (422, "file_special")
    for path in ("/proc/kmsg", "/proc/self/mem", "/proc/meminfo", "/proc/1/environ"):
        status, content = daemon.request("GET", f"{at}?path={path}")
        assert status >= 400 or len(content) <= 1 << 20, path
    assert daemon.exec(sandbox, "true")["exit_code"] == 0


@pytest.mark.skipif(not HAS_SEVERAL_IDS, reason="one user id here: there is no other user")
def test_whose_rights(daemon: Daemon, sandbox: str) -> None:
    at = f"/v1/sandboxes/{sandbox}"
    daemon.exec(sandbox, "mkdir -m 700 /closed; echo > /closed/f; mkdir -m 777 /open")
    for method, where, body in (
        ("GET", "files?path=/closed/f&user=user", None),
        ("PUT", "files?path=/closed/g&user=user", b""),
        ("DELETE", "files?path=/closed/f&user=user", None),
        ("GET", "stat?path=/closed/f&user=user", None),
        ("GET", "list?path=/closed&user=user", None),
        ("GET", "tree?path=/closed&user=user", None),
        ("PUT", "tree?path=/closed/d&user=user", bytes(1024)),
        ("GET", "watch?path=/closed&user=user", None),
        ("POST", "mkdir", {"path": "/closed/d", "user": "user"}),
        ("POST", "move", {"path": "/closed/f", "to": "/closed/g", "user": "user"}),
    ):
        status, problem = daemon.request(method, f"{at}/{where}", body)
        assert (status, problem["code"]) == (403, "file_permission"), where
        if isinstance(body, dict):
            assert daemon.request(method, f"{at}/{where}", {**body, "user": "root"})[0] == 204
    assert daemon.request("PUT", f"{at}/files?path=/open/f&user=1000", b"")[0] == 200
    entry = daemon.request("GET", f"{at}/stat?path=/open/f")[1]
    assert (entry["uid"], entry["gid"]) == (1000, 1000)
    status, problem = daemon.request("GET", f"{at}/stat?path=/&user=no-such-user")
    assert (status, problem["code"]) == (400, "invalid_input")


@pytest.mark.skipif(HAS_SEVERAL_IDS, reason="several user ids here: another user can be had")
def test_another_user_can_not_be_had(daemon: Daemon, sandbox: str) -> None:
    status, problem = daemon.request("GET", f"/v1/sandboxes/{sandbox}/stat?path=/&user=user")
    assert (status, problem["code"]) == (422, "unsupported")
