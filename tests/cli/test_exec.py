"""`agentkernel exec`: bytes, exit codes, signals, terminals, and how little it loads."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps

from .conftest import COMMAND, Cli, Json

DEADLINE_S = 30.0
HAS_SEVERAL_IDS = idmaps.is_host_root() or idmaps.find_subids() is not None


def test_prints_and_exits_like_the_command(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)


def test_every_byte_passes_both_ways(cli: Cli, box: str) -> None:
    data = os.urandom(3_000_000) + bytes(range(256)) + b"\r\n\x04\x03\x00"
    done = cli("exec", box, "--", "cat", input=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.returncode == 0


def test_stdin_may_be_a_file_or_nothing(box: str, daemon_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    command = [*COMMAND, "exec", box, "--", "cat"]
    with (tmp_path / "in").open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, timeout=50, check=True)
    assert done.stdout == b"from a file"
    closed = f"{' '.join(command)} <&-"
    assert subprocess.run(closed, shell=True, timeout=50, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["no-such-program"], 127, b"agentkernel: no-such-program: not found in the sandbox\n"),
        (["/etc/hostname"], 126, b"EACCES"),
        (["sh", "-c", "kill -9 $$"], 137, b"SIGKILL"),
        ([], 125, b"hint: agentkernel exec NAME -- CMD"),
    ],
)
def test_exit_codes(cli: Cli, box: str, words: list[str], code: int, line: bytes) -> None:
    done = cli("exec", box, "--", *words)
    assert done.returncode == code
    assert line in done.stderr


def test_timeout_is_124_and_kills_the_tree(cli: Cli, box: str) -> None:
    script = "setsid sleep 300 & sleep 300"
    done = cli("exec", "--timeout", "0.5", box, "--", "sh", "-c", script)
    assert done.returncode == 124
    assert b"after 0.5 s (--timeout)" in done.stderr


def test_options(cli: Cli, box: str) -> None:
    done = cli("exec", "-e", "A=1", "-w", "/var", box, "--", "sh", "-c", "echo $A; pwd")
    assert done.stdout == b"1\n/var\n"


def test_user(cli: Cli, box: str) -> None:
    done = cli("exec", "--user", "user", box, "--", "id", "-u")
    if HAS_SEVERAL_IDS:
        assert done.stdout == b"1000\n"
    else:
        assert done.returncode == 125
        assert b"one user id" in done.stderr and b"subuids" in done.stderr


def test_an_option_after_the_name_is_not_taken_for_the_command(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--timeout", "1", "--", "true")
    assert done.returncode == 125
    assert b"--timeout stands after the sandbox's name\nhint: " in done.stderr
    assert cli("exec", box, "echo", "-n", "x").stdout == b"x"


def test_missing_sandbox_is_one_line_and_a_hint(cli: Cli, box: str) -> None:
    done = cli("exec", "no-such", "--", "true")
    assert done.returncode == 125
    assert done.stderr.startswith(b"agentkernel: no sandbox no-such\nhint: ")
    assert cli("exec", "../x", "--", "true").returncode == 125


def test_json(ask: Json, cli: Cli, box: str) -> None:
    done = cli(
        "exec", "--json", box, "--", "sh", "-c", r"printf 'a\377'; cat >&2; exit 3", input=b"e"
    )
    body = json.loads(done.stdout)
    assert (body["outcome"], body["exit_code"], body["stderr"]) == ("exited", 3, "e")
    assert body["stdout_b64"] == "Yf8="
    assert done.returncode == 0
    missing = cli("exec", "--json", "no-such", "--", "true")
    assert json.loads(missing.stdout)["error"]["code"] == "not_found"


def test_broken_pipe_ends_the_command(box: str, daemon_dir: Path) -> None:
    line = f"{' '.join(COMMAND)} exec {box} -- yes | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=50,
        check=True,
    )
    assert done.stdout.split() == [b"y", b"141"]
    left = subprocess.run(
        [*COMMAND, "exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/comm | grep -qx yes"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert left.returncode == 1


def started(box: str, script: str) -> subprocess.Popen[bytes]:
    """A command that has said `up`."""
    process = subprocess.Popen(
        [*COMMAND, "exec", box, "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_interrupt_is_forwarded(box: str, daemon_dir: Path) -> None:
    process = started(box, "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert (output, process.returncode) == (b"caught\n", 3)


def test_second_interrupt_kills(box: str, daemon_dir: Path) -> None:
    process = started(box, "trap '' INT; echo up; while :; do sleep 0.1; done")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 137
    assert b"SIGKILL" in errors


def test_input_that_nobody_takes_does_not_hold_us(box: str, daemon_dir: Path) -> None:
    with open("/dev/zero", "rb") as endless:
        process = subprocess.Popen(
            [*COMMAND, "exec", box, "--", "sh", "-c", "echo up; exec sleep 60"],
            stdin=endless,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(0.5)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (130, 137)


def test_output_to_a_slow_reader_is_whole(box: str, daemon_dir: Path) -> None:
    process = started(box, "echo up; head -c 3000000 /dev/zero")
    time.sleep(0.5)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert len(output) == 3_000_000


def test_terminal(box: str, daemon_dir: Path) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        script = "test -t 0 && test -t 1 && echo TTY; read x; echo got-$x; exit 6"
        os.execv(COMMAND[0], [*COMMAND, "exec", box, "--", "sh", "-c", script])
    output, deadline, answered = b"", time.monotonic() + DEADLINE_S, False
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                output += os.read(fd, 4096)
            except OSError:
                break
        if b"TTY" in output and not answered:
            os.write(fd, b"word\r")
            answered = True
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
    assert b"got-word" in output


def test_interrupt_of_a_terminal_is_the_guests(box: str, daemon_dir: Path) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        script = "trap 'exit 9' INT; echo up; while :; do sleep 0.1; done"
        os.execv(COMMAND[0], [*COMMAND, "exec", box, "--", "sh", "-c", script])
    output, deadline, sent = b"", time.monotonic() + DEADLINE_S, False
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                output += os.read(fd, 4096)
            except OSError:
                break
        if b"up" in output and not sent:
            os.write(fd, b"\x03")
            sent = True
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_the_terminal_of_a_job_is_left_and_taken_up_again(box: str, daemon_dir: Path) -> None:
    script = "echo up; while read x; do echo got-$x; test $x != end || exit 8; done"
    job = subprocess.run(
        [*COMMAND, "job", "start", "--tty", box, "--", "sh", "-c", script],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    ).stdout.strip()  # fmt: skip

    def attached(words: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
        """Types each word when what is before it was shown."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(COMMAND[0], [*COMMAND, "attach", job])
        output, deadline = b"", time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if words and words[0][0] in output:
                os.write(fd, words.pop(0)[1])
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    output += os.read(fd, 4096)
                except OSError:
                    break
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output

    code, output = attached([(b"up", b"one\r"), (b"got-one", b"\x1c\x1c")])
    assert (code, b"left running" in output) == (0, True), output
    code, output = attached([(b"got-one", b"end\r")])
    assert (code, b"got-end" in output) == (8, True), output
