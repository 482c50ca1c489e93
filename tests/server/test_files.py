"""Files over HTTP."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pytest

from .daemon_process import Daemon


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
