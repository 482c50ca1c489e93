"""`agentkernel run`: bytes, exit codes, signals, terminals, and nothing left behind."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import COMMAND, Cli

DEADLINE_S = 30.0


def test_prints_and_exits_like_the_command(cli: Cli) -> None:
    done = cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.returncode) == (b"out\n", 7)
    assert done.stderr.endswith(b"err\n")


def test_python_inside_is_the_python_outside(cli: Cli) -> None:
    script = "import sys, os; print(sys.version); print(6*7)"
    outside = subprocess.run(
        ["python3", "-c", script], capture_output=True, check=True, timeout=DEADLINE_S
    )
    inside = cli("run", "-q", "--", "python3", "-c", script)
    assert inside.stderr == b""
    assert inside.stdout == outside.stdout
    assert inside.stdout.endswith(b"42\n")


def test_every_byte_passes_both_ways(cli: Cli) -> None:
    data = os.urandom(3_000_000) + bytes(range(256)) + b"\r\n\x04\x03\x00"
    done = cli("run", "-q", "--", "cat", input=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.returncode == 0


def test_background_child_that_holds_the_pipe_does_not_hang(cli: Cli) -> None:
    started = time.monotonic()
    done = cli("run", "-q", "--", "sh", "-c", "sleep 300 & echo started")
    assert done.stdout == b"started\n"
    assert time.monotonic() - started < DEADLINE_S


def test_missing_program_is_127_with_a_line(cli: Cli) -> None:
    done = cli("run", "-q", "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr == b"agentkernel: no-such-program: not found in the sandbox\n"


def test_program_that_is_none_is_126(cli: Cli) -> None:
    done = cli("run", "-q", "--", "/etc/hostname")
    assert done.returncode == 126
    assert b"EACCES" in done.stderr


def test_signal_is_128_plus_n(cli: Cli) -> None:
    done = cli("run", "-q", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + signal.SIGKILL
    assert b"SIGKILL" in done.stderr


def test_timeout_is_124_and_kills_the_tree(cli: Cli) -> None:
    done = cli("run", "-q", "--timeout", "0.5", "--", "sh", "-c", "setsid sleep 300 & sleep 300")
    assert done.returncode == 124
    assert b"--timeout" in done.stderr


def test_no_command_is_ours(cli: Cli) -> None:
    done = cli("run")
    assert done.returncode == 125
    assert b"hint: agentkernel run -- CMD" in done.stderr


def test_json_result(cli: Cli) -> None:
    done = cli("run", "--json", "--", "sh", "-c", r"printf 'a\377'; echo e >&2; exit 3")
    body = json.loads(done.stdout)
    assert (body["outcome"], body["exit_code"], body["stderr"]) == ("exited", 3, "e\n")
    assert body["stdout_b64"] == "Yf8="
    assert done.returncode == 0


def test_json_error(cli: Cli) -> None:
    done = cli("run", "--json", "--image", "/no/such/place", "--", "true")
    body = json.loads(done.stdout)
    assert done.returncode == 125
    assert body["error"]["code"] == "not_found"


def test_environment_is_clean_and_settable(cli: Cli) -> None:
    environment = {**os.environ, "SECRET_MARKER": "hunter2", "PASSED": "on"}
    done = cli("run", "-q", "-e", "A=1", "-e", "PASSED", "--", "env", env=environment)
    lines = set(done.stdout.decode().splitlines())
    assert {"A=1", "PASSED=on", "HOME=/root"} <= lines
    assert not any("hunter2" in line for line in lines)


def test_working_directory(cli: Cli) -> None:
    assert cli("run", "-q", "-w", "/var/tmp", "--", "pwd").stdout == b"/var/tmp\n"
    missing = cli("run", "-q", "-w", "/no/such", "--", "pwd")
    assert missing.returncode == 126
    assert b"cwd: ENOENT" in missing.stderr


def test_sudo_answers_readably(cli: Cli) -> None:
    assert cli("run", "-q", "--", "sudo", "id", "-u").stdout == b"0\n"
    denied = cli("run", "-q", "--user", "user", "--", "sudo", "id")
    assert denied.returncode == 1
    assert b"--user root" in denied.stdout + denied.stderr


def test_system_directories_can_be_changed_inside_only(cli: Cli) -> None:
    script = "touch /usr/bin/new && rm /usr/bin/env && ls /usr/bin/new && ! ls /usr/bin/env"
    done = cli("run", "-q", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert Path("/usr/bin/env").exists()
    assert not Path("/usr/bin/new").exists()


def test_broken_pipe_ends_the_command(daemon_dir: Path) -> None:
    line = f"{' '.join(COMMAND)} run -q -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=50, check=True)
    assert done.stdout.split() == [b"y", b"141"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_command(daemon_dir: Path, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*COMMAND, "run", "-q", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (out, process.returncode) == (f"got {name}\n".encode(), 9)


def test_second_interrupt_kills_what_does_not_listen(daemon_dir: Path) -> None:
    script = "trap '' INT; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*COMMAND, "run", "-q", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + DEADLINE_S
    # To the very end: an interrupt that comes after the second must not change the outcome.
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGKILL


class TerminalSession:
    """`agentkernel run` on a pseudo-terminal, driven as a person would."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(sys.executable, [*COMMAND, *arguments])
        self.seen = b""

    def expect(self, text: bytes) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; seen: {self.seen[-500:]!r}"
            try:
                self.seen += os.read(self.fd, 4096)
            except OSError:
                raise AssertionError(f"{text!r} did not come; seen: {self.seen!r}") from None
        self.seen = self.seen.partition(text)[2]

    def send(self, data: bytes) -> None:
        os.write(self.fd, data)

    def status(self) -> int:
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_terminal_gets_a_terminal(daemon_dir: Path) -> None:
    session = TerminalSession("run", "-q", "--", "sh")
    session.send(b"test -t 0 && test -t 1 && echo is''tty\r")
    session.expect(b"istty\r\n")
    # Said by the foreground process itself: from then on Ctrl-C is its, not the shell's.
    session.send(b"sh -c 'echo wai\"\"ting; exec sleep 300'\r")
    session.expect(b"waiting\r\n")
    session.send(b"\x03")  # Ctrl-C goes through the guest's own line discipline
    session.expect(b"^C")
    session.send(b"exit 5\r")
    assert session.status() == 5


def test_terminal_size_follows(daemon_dir: Path) -> None:
    import fcntl
    import struct
    import termios

    session = TerminalSession("run", "-q", "--", "sh")
    session.send(b"echo rea''dy\r")
    session.expect(b"ready")
    fcntl.ioctl(session.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    session.send(b"until test \"$(stty size)\" = '33 99'; do sleep 0.05; done; echo resi''zed\r")
    session.expect(b"resized")
    session.send(b"exit\r")
    assert session.status() == 0
