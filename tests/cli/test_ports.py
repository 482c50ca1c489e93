"""`-p` and `agentkernel port`: a server inside, reached from here, and closed again."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from .conftest import COMMAND, Cli, Json

DEADLINE_S = 30.0
SERVER = ("python3", "-m", "http.server", "--bind", "127.0.0.1", "8000")


def fetched(where: str) -> bytes:
    """What a server that is starting answers."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{where}/", timeout=DEADLINE_S) as answer:
                return bytes(answer.read())
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, "it never answered"
            time.sleep(0.05)


def refused(where: str) -> bool:
    host, _, port = where.rpartition(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) != 0


def test_run_publishes_while_it_runs(daemon_dir: Path) -> None:
    words = [*COMMAND, "run", "-p", "0:8000", "--", *SERVER]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr
    where = None
    for line in process.stderr:
        if match := re.search(rb"port 8000 is on (127\.0\.0\.1:\d+)", line):
            where = match[1].decode()
            break
    assert where, "it says where the port is"
    assert b"Directory listing" in fetched(where)
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    process.stderr.close()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    # The daemon removes the sandbox when its caller is gone, a moment later.
    deadline = time.monotonic() + DEADLINE_S
    while not refused(where):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_publish_list_unpublish(cli: Cli, ask: Json) -> None:
    assert cli("sandbox", "create", "ports", "-p", "0:8000", "-p", "preview:9000").returncode == 0
    try:
        cli("job", "start", "ports", "--", *SERVER)
        first, second = ask("port", "list", "ports")["ports"]
        assert (first["port"], second["port"], second["host_port"]) == (8000, 9000, None)
        where = f"{first['address']}:{first['host_port']}"
        assert b"Directory listing" in fetched(where)
        table = cli("port", "list", "ports").stdout.decode()
        assert where in table and "open" in table and "token" in table
        assert cli("port", "unpublish", "ports", "8000", "9000").returncode == 0
        assert refused(where) and ask("port", "list", "ports")["ports"] == []

        done = cli("port", "publish", "ports", f"{where}:8000")
        assert (done.returncode, done.stdout.decode()) == (0, f"{where}\n")
        assert b"Directory listing" in fetched(where)
        done = cli("port", "publish", "ports", "8000", "0:8001")
        assert done.returncode == 125 and b"published already" in done.stderr
        assert re.fullmatch(rb"127\.0\.0\.1:\d+\n", done.stdout), "the other one is done"
        [made] = ask("port", "publish", "--public", "ports", "preview:8002")["ports"]
        assert made["public"] and made["preview_path"].endswith("/8002/")
        cli("sandbox", "stop", "--grace", "0", "ports")
        assert "does not run" in cli("port", "list", "ports").stdout.decode()
        assert cli("sandbox", "start", "ports").returncode == 0
        assert all(entry["open"] for entry in ask("port", "list", "ports")["ports"])
    finally:
        assert cli("sandbox", "remove", "ports").returncode == 0
    assert refused(where)


def test_what_goes_wrong_is_said(cli: Cli) -> None:
    assert cli("run", "-p", "web", "--", "true").returncode == 2
    done = cli("run", "-p", "web:1:1", "--", "true")
    assert done.returncode == 125 and b"is not a port to publish" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        done = cli("run", "-p", f"{number}:8000", "--", "true")
        assert done.returncode == 125 and f"port {number} is in use".encode() in done.stderr
    assert cli("port", "list", "nobody").returncode == 125
