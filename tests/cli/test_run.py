"""`agentkernel run` over the daemon: what is said, what is cut off, and what is left: nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentkernel import Sandbox

from .conftest import COMMAND, Cli, Json

DEADLINE_S = 30.0
UNSHARE = shutil.which("unshare") or "unshare"


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def nothing_is_left(state: Path) -> bool:
    runs = state / "runs"
    return not Sandbox.list() and (not runs.exists() or not os.listdir(runs))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of its own, which has neither a daemon nor an image."""
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path / "state"
    subprocess.run([*COMMAND, "daemon", "stop"], timeout=50, check=True)


def started(script: str, *options: str) -> subprocess.Popen[bytes]:
    """A run that has said `up`."""
    process = subprocess.Popen(
        [*COMMAND, "run", *options, "--", "sh", "-c", f"echo up; {script}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_progress_reaches_the_terminal(cli: Cli, fresh: Path) -> None:
    first = cli("run", "--", "echo", "hi")
    assert first.stdout == b"hi\n"
    assert b"agentkernel: preparing the host image" in first.stderr
    assert b"preparing" not in cli("run", "--", "echo", "hi").stderr


_TWICE = """
import subprocess, sys
words = [sys.executable, "-m", "agentkernel"]
for flags in (["-q"], [], []):
    done = subprocess.run([*words, "run", *flags, "--", "true"], capture_output=True, timeout=40)
    assert done.returncode == 0, done
    print(done.stderr.decode().count("is not enforced"))
subprocess.run([*words, "daemon", "stop"], timeout=40, stdout=subprocess.DEVNULL)
"""


def test_a_default_that_does_not_hold_is_said_once(tmp_path: Path) -> None:
    """Without control groups memory is not bounded."""
    if not shutil.which("mount"):
        pytest.skip("mount is not installed")
    hide = 'mount -t tmpfs none /sys/fs/cgroup; exec "$@"'
    prefix = [UNSHARE, "--user", "--map-root-user", "--mount", "sh", "-ec", hide, "sh"]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _TWICE],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == [b"0", b"1", b"0"], done


def test_output_is_cut_off_and_the_command_goes_on(cli: Cli, daemon_dir: Path) -> None:
    script = "head -c 100000 /dev/zero; echo err >&2; exit 4"
    done = cli("run", "-q", "--output", "1k", "--", "sh", "-c", script)
    assert (len(done.stdout), done.returncode) == (1024, 4)
    assert done.stderr.splitlines() == [
        b"agentkernel: stdout is cut off after 1024 bytes (--output)", b"err",
    ]  # fmt: skip
    body = json.loads(cli("run", "--json", "--output", "1k", "--", "sh", "-c", script).stdout)
    assert (len(body["stdout"]), body["truncated"], body["dropped_bytes"]) == (1024, True, 98976)


def test_json_takes_megabytes_of_input(cli: Cli, daemon_dir: Path) -> None:
    done = cli("run", "--json", "--", "wc", "-c", input=bytes(9_000_000))
    assert json.loads(done.stdout)["stdout"] == "9000000\n"


def test_without_a_cap_all_of_it_comes(cli: Cli, daemon_dir: Path) -> None:
    """More than any profile keeps of a collected result."""
    done = cli("run", "-q", "--profile", "restrictive", "--", "head", "-c", "9000000", "/dev/zero")
    assert len(done.stdout) == 9_000_000


def test_time_to_live(cli: Cli, daemon_dir: Path) -> None:
    done = cli("run", "-q", "--ttl", "500ms", "--", "sleep", "60")
    assert done.returncode == 125
    assert done.stderr == (
        b"agentkernel: the sandbox ended before the command did; it had 0.5 s to live (--ttl)\n"
    )
    eventually(lambda: nothing_is_left(daemon_dir))


def test_the_callers_path_counts_not_the_daemons(cli: Cli, daemon_dir: Path) -> None:
    cli("run", "-q", "--", "true")  # there is a daemon, whose PATH is the usual one
    for first, second in (("/usr/bin", "/usr/sbin"), ("/usr/sbin", "/usr/bin")):
        path = f"{first}:{second}:{os.environ['PATH']}"
        done = cli("run", "-q", "--", "sh", "-c", "echo $PATH", env={**os.environ, "PATH": path})
        entries = done.stdout.decode().strip().split(":")
        assert entries.index(first) < entries.index(second), done


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_a_client_that_ends_leaves_nothing(daemon_dir: Path, number: signal.Signals) -> None:
    eventually(lambda: nothing_is_left(daemon_dir))
    process = started("exec sleep 60", "-q")
    assert len(Sandbox.list()) == 1
    process.send_signal(number)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    eventually(lambda: nothing_is_left(daemon_dir))


def test_a_killed_daemon_is_said_and_the_next_leaves_nothing(
    ask: Json, fresh: Path, tmp_path: Path
) -> None:
    process = started("exec sleep 60", "-q")
    pid = ask("daemon", "status")["pid"]
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 125
    assert said.startswith(b"agentkernel: the connection to the command was lost\nhint: ")
    assert nothing_is_left(fresh)  # the first call starts a daemon, which tidied up before


def test_interrupt_kills_the_tree_and_removes_the_sandbox(daemon_dir: Path) -> None:
    eventually(lambda: nothing_is_left(daemon_dir))
    # A shell that is just forking can lose an interrupt, at any terminal; a program can't.
    waits = "import time; print('waits', flush=True); time.sleep(60)"
    process = started(f'setsid sleep 60 & exec python3 -c "{waits}"', "-q")
    assert process.stdout is not None and process.stdout.readline() == b"waits\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    eventually(lambda: nothing_is_left(daemon_dir))


def test_a_signal_passes_endless_input(daemon_dir: Path) -> None:
    """The first one: it does not wait for input that nobody takes."""
    with open("/dev/zero", "rb") as endless:
        process = subprocess.Popen(
            [
                *COMMAND,
                "run",
                "-q",
                "--",
                "sh",
                "-c",
                "trap 'exit 7' TERM; echo up; sleep 60 & wait",
            ],
            stdin=endless,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    # It reads of its input what may be under way, and not more.
    source = f"/proc/{process.pid}/fdinfo/0"
    eventually(lambda: _stands_still(lambda: Path(source).read_text().split()[1]))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 7


def _stands_still(look: Callable[[], object]) -> bool:
    before = look()
    time.sleep(0.3)
    return look() == before


_CONSOLE = """
import socket, sys
from agentkernel.cli.console import Console
from agentkernel.client import frames
connection = socket.socket(fileno=int(sys.argv[1]))
connection.setblocking(False)
ended = Console(connection, frames.Decoder(), stdin=True, prepares=True).attend()
sys.exit(ended if isinstance(ended, int) else ended.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_making_of_a_sandbox(number: signal.Signals) -> None:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", _CONSOLE, str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    theirs.close()
    message = b'\3{"event": "progress", "text": "mak\\u001bing"}'
    ours.sendall(bytes((0x82, len(message))) + message)
    assert process.stderr is not None
    assert process.stderr.readline() == "agentkernel: mak\ufffding …\n".encode()
    process.send_signal(number)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number
    ours.settimeout(DEADLINE_S)
    while ours.recv(4096):
        pass  # the daemon sees the end, and gives up what it makes
    ours.close()


def test_a_daemon_that_does_not_tell_what_is_taken_gets_all_of_it() -> None:
    """An older one: its `started` has no window."""
    ours, theirs = socket.socketpair()
    data = bytes(range(256)) * 8192
    process = subprocess.Popen(
        [sys.executable, "-c", _CONSOLE, str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    theirs.close()
    message = b'\3{"event": "started", "pid": 2}'
    ours.sendall(bytes((0x82, len(message))) + message)
    feeder = threading.Thread(target=lambda: process.communicate(data), daemon=True)
    feeder.start()
    ours.settimeout(DEADLINE_S)
    got, buffer, ended = b"", bytearray(), False
    while not ended:
        buffer += ours.recv(1 << 16)
        while (payload := _unmasked(buffer)) is not None:
            got += payload[1:] if payload[0] == 0 else b""
            ended = ended or payload == b'\3{"eof": true}'
    assert got == data
    message = b'\3{"event": "exit", "outcome": "exited", "exit_code": 3}'
    ours.sendall(bytes((0x82, len(message))) + message)
    feeder.join(DEADLINE_S)
    assert process.returncode == 3
    ours.close()


def _unmasked(buffer: bytearray) -> bytes | None:
    """The payload of the first whole frame of a client, which is taken out of the buffer."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(buffer) < start:
            return None
        size = int.from_bytes(buffer[2:start], "big")
    if len(buffer) < start + 4 + size:
        return None
    key = bytes(buffer[start : start + 4])
    mask = (key * (size // 4 + 1))[:size]
    masked = int.from_bytes(buffer[start + 4 : start + 4 + size], "big")
    del buffer[: start + 4 + size]
    return (masked ^ int.from_bytes(mask, "big")).to_bytes(size, "big")
