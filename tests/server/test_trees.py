"""Directories over HTTP, as tar: whole, bounded, and nothing written where it does not belong."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .daemon_process import Daemon, UnixConnection, eventually

WORKERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker"
MIB = 1 << 20


def archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def put(daemon: Daemon, sandbox: str, data: bytes, path: str = "/w", **query: Any) -> Any:
    more = "".join(f"&{key}={value}" for key, value in query.items())
    return daemon.request("PUT", f"/v1/sandboxes/{sandbox}/tree?path={path}{more}", data)


def get(daemon: Daemon, sandbox: str, path: str = "/w", **query: Any) -> Any:
    more = "".join(f"&{key}={value}" for key, value in query.items())
    return daemon.request("GET", f"/v1/sandboxes/{sandbox}/tree?path={path}{more}")


def no_worker_is_left(daemon: Daemon, sandbox: str) -> None:
    eventually(lambda: bool(daemon.exec(sandbox, WORKERS)["stdout"] == "0\n"))


def descriptors(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def test_up_and_down(daemon: Daemon, sandbox: str) -> None:
    name = os.fsdecode(b"\xff odd\n")
    data = archive(
        member("./", type=tarfile.DIRTYPE, mode=0o700),
        member("./d/empty", type=tarfile.DIRTYPE, mode=0o750),
        member("d/run", b"#!/bin/sh\n", mode=0o4755, mtime=1_600_000_000.25, uid=7, gid=8),
        member(name, b"odd"),
        member("x/" * 60 + "far", b"far"),
        link("link", "/etc/passwd"),
    )
    status, body = put(daemon, sandbox, data, "/w/new")
    assert (status, body) == (200, {"files": 5, "bytes": 10 + 3 + 3})
    shown = daemon.exec(sandbox, "cd /w/new; stat -c '%a %u %g %.2Y' d/run; readlink link")[
        "stdout"
    ]
    assert shown == "755 0 0 1600000000.25\n/etc/passwd\n"

    status, content = get(daemon, sandbox, "/w/new")
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {info.name: info for info in tar}
        assert found["d/empty"].isdir() and found["d/empty"].mode == 0o750
        assert found["d/run"].mtime == 1_600_000_000.25
        assert found["link"].linkname == "/etc/passwd"
        assert tar.extractfile(found[name]).read() == b"odd"  # type: ignore[union-attr]
        last = tar.getmembers()[-1]
    # Directories on the way are entries too, and the root is the last one.
    assert last.name == "." and len(found) == 5 + 1 + 60 + 1
    comment = last.pax_headers["comment"]
    assert comment == "agentkernel-tree files=66 bytes=16 skipped=0"
    assert put(daemon, sandbox, content, "/w/again")[1] == {"files": 66, "bytes": 16}
    assert daemon.exec(sandbox, "diff -r /w/new /w/again")["exit_code"] == 0

    below = get(daemon, sandbox, "/w/new", prefix="a/b")[1]
    with tarfile.open(fileobj=io.BytesIO(below)) as tar:
        assert all(info.name.startswith("a/b") for info in tar)


def test_what_is_no_file_is_counted(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir /w; mkfifo /w/a /w/b; echo > /w/c")
    with tarfile.open(fileobj=io.BytesIO(get(daemon, sandbox)[1])) as tar:
        assert [info.name for info in tar] == ["c", "."]
        assert tar.getmembers()[-1].pax_headers["comment"].endswith("skipped=2")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (archive(member("../escaped", b"x")), 400, "invalid_input"),
        (archive(member("/w2/escaped", b"x")), 400, "invalid_input"),
        (archive(member("a/../../escaped", b"x")), 400, "invalid_input"),
        (archive(link("a", "/w2"), member("a/escaped", b"x")), 422, "file_error"),
        (archive(link("a", ".."), member("a/w2/escaped", b"x")), 422, "file_error"),
        (archive(member("f", type=tarfile.FIFOTYPE)), 400, "invalid_input"),
        (archive(member("n", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), 400, "invalid_input"),
        (archive(member("h", type=tarfile.LNKTYPE, linkname="/etc/passwd")), 400, "invalid_input"),
        (archive(member("x", pax_headers={"path": "../escaped"})), 400, "invalid_input"),
        (archive(member("x", pax_headers={"GNU.sparse.major": "1"})), 400, "invalid_input"),
        (archive(member("y" * 300)), 400, "invalid_input"),
        (archive(member("x", b"x" * 3000))[:2000], 400, "invalid_input"),
        (b"\x1f\x8b\x08" + bytes(600), 400, "invalid_input"),
        (b"", 400, "invalid_input"),
        (archive(*(member(str(i)) for i in range(11))), 413, "file_too_large"),
        (archive(member("x", b"x" * 5001)), 413, "file_too_large"),
    ],
)
def test_hostile_archives(
    daemon: Daemon, sandbox: str, data: bytes, status: int, code: str
) -> None:
    daemon.exec(sandbox, "mkdir /w /w2; touch /w2/kept")
    got, problem = put(daemon, sandbox, data, limit_files=10, limit_bytes=5000)
    assert (got, problem["code"]) == (status, code), problem
    outside = daemon.exec(sandbox, "find / -xdev -name escaped; ls /w2; ls -A /w | grep part")
    assert outside["stdout"] == "kept\n"
    no_worker_is_left(daemon, sandbox)


def test_control_tar_inside_the_sandbox_gets_out(daemon: Daemon, sandbox: str) -> None:
    """The same archives do reach outside of their directory where nothing guards it."""
    daemon.exec(sandbox, "mkdir /w /w2")
    data = archive(link("a", "/w2"), member("a/escaped", b"x"))
    assert daemon.request("PUT", f"/v1/sandboxes/{sandbox}/files?path=/t.tar", data)[0] == 200
    unpack = "import tarfile; tarfile.open('/t.tar').extractall('/w')"
    daemon.exec(sandbox, f'python3 -W ignore -c "{unpack}"; tar -C /w -xf /t.tar')
    assert daemon.exec(sandbox, "ls /w2")["stdout"] == "escaped\n"


def test_mistakes(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir /w; echo > /w/f; mkdir -m 0 /w/closed")
    assert get(daemon, sandbox, "/none")[1]["code"] == "file_not_found"
    assert get(daemon, sandbox, "/w/f")[1]["code"] == "not_a_directory"
    assert get(daemon, sandbox, "/dev/zero")[1]["code"] in ("not_a_directory", "file_special")
    assert get(daemon, sandbox, prefix="../x")[1]["code"] == "invalid_input"
    assert get(daemon, sandbox, "relative")[1]["code"] == "invalid_input"
    assert get(daemon, sandbox, limit_files=1)[1]["code"] == "file_too_large"
    assert put(daemon, sandbox, archive(), "/w/f")[1]["code"] == "not_a_directory"
    assert put(daemon, sandbox, archive(member("f/x")), "/w")[1]["code"] == "not_a_directory"
    assert put(daemon, sandbox, archive(member("x")), "/w", user="no-such")[0] == 400


def pattern(size: int) -> Iterator[bytes]:
    for _ in range(size // MIB):
        yield b"\0" * MIB


def test_many_files_and_a_large_one_in_bounded_memory(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(
        sandbox,
        "mkdir -p /w/many && cd /w/many && for i in $(seq 5000); do echo $i > $i; done;"
        "truncate -s 200M /w/sparse; printf end >> /w/sparse",
    )
    get(daemon, sandbox, "/w/many")  # what is loaded once is not what is measured
    put(daemon, sandbox, archive(member("x")), "/v")
    daemon.forget_peak()
    before = daemon.peak_memory()
    connection = daemon.connection()
    connection.request("GET", f"/v1/sandboxes/{sandbox}/tree?path=/w")
    answer = connection.getresponse()
    files = size = 0
    with tarfile.open(fileobj=answer, mode="r|") as tar:
        for info in tar:
            files += info.isfile()
            size += info.size
            comment = info.pax_headers.get("comment", "")
    connection.close()
    expected = sum(len(str(i)) + 1 for i in range(1, 5001)) + 200 * MIB + 3
    assert (files, size) == (5001, expected)
    assert comment == f"agentkernel-tree files=5002 bytes={expected} skipped=0"

    def upload() -> Iterator[bytes]:
        yield member("large", bytes(0), size=200 * MIB)[0].tobuf()
        yield from pattern(200 * MIB)
        for i in range(5000):
            yield member(f"many/{i}", b"", size=4)[0].tobuf() + b"text" + bytes(508)
        yield bytes(1024)

    connection = daemon.connection()
    connection.request(
        "PUT", f"/v1/sandboxes/{sandbox}/tree?path=/v", body=upload(), encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )  # fmt: skip
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"files":5001,"bytes":209735200}')
    connection.close()
    assert daemon.peak_memory() - before < 16 * MIB
    shown = daemon.exec(sandbox, "sha256sum < /v/large; ls /v/many | wc -l")["stdout"].split()
    digest = hashlib.sha256()
    for piece in pattern(200 * MIB):
        digest.update(piece)
    assert (shown[0], shown[-1]) == (digest.hexdigest(), "5000")


def test_a_file_that_changes_keeps_the_archive_whole(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir /w; truncate -s 40M /w/a; truncate -s 40M /w/b; echo c > /w/c")
    connection = daemon.connection()
    connection.request("GET", f"/v1/sandboxes/{sandbox}/tree?path=/w")
    answer = connection.getresponse()
    content = answer.read(100_000)
    daemon.exec(sandbox, "truncate -s 10 /w/a; echo more >> /w/b; rm /w/c")
    content += answer.read()
    connection.close()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert [(i.name, i.size) for i in tar][:2] == [("a", 40 * MIB), ("b", 40 * MIB + 5)]
        assert tar.getmembers()[-1].name == "."


def broken_off(connection: UnixConnection, path: str) -> bytes:
    """What came before an answer was cut off, which has to be seen."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(30)
    sock.connect(connection.path)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    content = b""
    while piece := sock.recv(1 << 20):
        content += piece
    sock.close()
    assert content.startswith(b"HTTP/1.1 200") and not content.endswith(b"0\r\n\r\n")
    return content


def test_what_fails_midway_says_why_and_has_no_end(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir /w; head -c 300000 /dev/zero > /w/a; truncate -s 1M /w/b")
    path = f"/v1/sandboxes/{sandbox}/tree?path=/w&limit_bytes=500000"
    content = broken_off(daemon.connection(), path)
    assert b"comment=agentkernel-error" in content and b'"code":"file_too_large"' in content
    assert b"agentkernel-tree" not in content


def test_a_sandbox_that_ends_midway(daemon: Daemon) -> None:
    sandbox = daemon.create()
    daemon.exec(sandbox, "mkdir /w; truncate -s 500M /w/a")
    connection = daemon.connection()
    connection.request("GET", f"/v1/sandboxes/{sandbox}/tree?path=/w")
    answer = connection.getresponse()
    assert answer.read(1000)
    assert daemon.request("DELETE", f"/v1/sandboxes/{sandbox}")[0] == 204
    with pytest.raises(Exception, match="IncompleteRead"):
        answer.read()
    connection.close()


def test_clients_that_go_away_leave_nothing_open(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir /w; truncate -s 500M /w/a")
    daemon.exec(sandbox, "true")
    before = descriptors(daemon)
    connections = []
    for _ in range(5):
        down = daemon.connection()
        down.request("GET", f"/v1/sandboxes/{sandbox}/tree?path=/w")
        assert down.getresponse().read(1000)
        up = daemon.connection()
        up.putrequest("PUT", f"/v1/sandboxes/{sandbox}/tree?path=/v")
        up.putheader("Transfer-Encoding", "chunked")
        up.endheaders()
        block = member("half", b"", size=MIB)[0].tobuf() + b"x" * 10_000
        up.send(b"%x\r\n%s\r\n" % (len(block), block))
        connections += [down, up]
    # Each has a worker, but for this one exec.
    eventually(lambda: int(daemon.exec(sandbox, WORKERS)["stdout"]) == 10)
    for connection in connections:
        connection.close()
    no_worker_is_left(daemon, sandbox)
    eventually(lambda: descriptors(daemon) <= before)
    assert daemon.exec(sandbox, "ls -A /v")["stdout"] == ""


def test_an_archive_that_stops_coming_holds_nobody_up(daemon: Daemon, sandbox: str) -> None:
    """While an upload waits for its client, the same sandbox and others answer."""
    up = daemon.connection()
    up.putrequest("PUT", f"/v1/sandboxes/{sandbox}/tree?path=/v")
    up.putheader("Content-Length", "100000")
    up.endheaders()
    up.send(member("f", b"", size=99_000)[0].tobuf())
    assert daemon.exec(sandbox, "echo 1")["stdout"] == "1\n"
    assert get(daemon, sandbox, "/etc")[0] == 200
    up.close()
    no_worker_is_left(daemon, sandbox)


# -- watches --------------------------------------------------------------------------------------


class Events:
    """The events of one stream, as (kind, data)."""

    def __init__(self, daemon: Daemon, path: str) -> None:
        self.connection = daemon.connection()
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        kind = ""
        for raw in self.answer:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, line.removeprefix("data: ")

    def close(self) -> None:
        self.connection.close()


def test_a_watch(daemon: Daemon, sandbox: str) -> None:
    daemon.exec(sandbox, "mkdir -p /w/d")
    events = Events(daemon, f"/v1/sandboxes/{sandbox}/watch?path=/w&recursive=1")
    seen = iter(events)
    assert next(seen) == ("ready", '{"path":""}')
    daemon.exec(
        sandbox, "cd /w; echo > d/f; mv d/f g; touch $(printf '\\377'); rm -r d; rmdir /w/x"
    )
    wanted = [
        ("create", '{"path":"d/f"}'),
        ("move", '{"path":"d/f","to":"g"}'),
        ("create", '{"path_b64":"/w=="}'),
        ("remove", '{"path":"d"}'),
    ]
    for expected in wanted:
        assert expected in iter(lambda: next(seen), None)
    daemon.exec(sandbox, "rm -r /w")
    *_, last = seen
    assert last == ("end", "{}")
    events.close()


def test_watches_that_nobody_wants(daemon: Daemon, sandbox: str) -> None:
    at = f"/v1/sandboxes/{sandbox}/watch"
    assert daemon.request("GET", f"{at}?path=/none")[1]["code"] == "file_not_found"
    before = descriptors(daemon)
    watches = [Events(daemon, f"{at}?path=/tmp") for _ in range(5)]
    for events in watches:
        assert next(iter(events))[0] == "ready"
    assert daemon.exec(sandbox, WORKERS)["stdout"] == "5\n"
    for events in watches:
        events.close()
    no_worker_is_left(daemon, sandbox)
    eventually(lambda: descriptors(daemon) <= before)


def test_a_watch_hears_that_the_daemon_ends(own_daemon: Daemon) -> None:
    sandbox = own_daemon.create()
    events = Events(own_daemon, f"/v1/sandboxes/{sandbox}/watch?path=/tmp")
    seen = iter(events)
    assert next(seen)[0] == "ready"
    started = time.monotonic()
    assert own_daemon.terminate() == 0
    kind, data = next(seen)
    assert kind == "error" and "daemon_unavailable" in data
    assert time.monotonic() - started < 30
    events.close()


def test_a_watch_hears_that_its_sandbox_is_gone(daemon: Daemon) -> None:
    sandbox = daemon.create()
    events = Events(daemon, f"/v1/sandboxes/{sandbox}/watch?path=/tmp")
    seen = iter(events)
    assert next(seen)[0] == "ready"
    assert daemon.request("DELETE", f"/v1/sandboxes/{sandbox}")[0] == 204
    kind, data = next(seen)
    assert kind == "error" and "sandbox_unavailable" in data
    events.close()
