"""`agentkernel audit`: looks, follows, proves; without a daemon, and safe for a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentkernel.audit.entries import Actor
from agentkernel.audit.files import log_files
from agentkernel.audit.log import AuditLog, Retention
from agentkernel.cli import values

from .conftest import COMMAND, Cli, Json

Audit = Callable[..., subprocess.CompletedProcess[str]]
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def log(state: Path) -> Iterator[AuditLog]:
    log = AuditLog(state / "audit", Retention(file_bytes=64 << 10, keep_bytes=1 << 20))
    yield log
    log.close()


@pytest.fixture
def audit(state: Path) -> Audit:
    """`agentkernel audit ARGS…` on a state that has no daemon, and gets none."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, "audit", *arguments],
            env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        assert not (state / "api.sock").exists()
        assert "Traceback" not in done.stderr
        return done

    return call


def write(
    log: AuditLog, sandbox: str, word: str, result: str = "ok", code: str | None = None
) -> None:
    actor = Actor(door="socket", owner="local", client="agentkernel-cli")
    id = f"id-of-{sandbox}"
    seq = log.append("exec", actor=actor, args={"argv": ["echo", word]}, sandbox=id, name=sandbox)
    log.append(
        "exec", of=seq, actor=actor, result=result, code=code, sandbox=id, name=sandbox,
        details={"outcome": "exited", "exit_code": 7},
    )  # fmt: skip


def test_a_table_of_actions(log: AuditLog, audit: Audit) -> None:
    write(log, "one", "first")
    write(log, "two", "second", result="error", code="not_found")
    log.append("exec", sandbox="x", name="three", args={"argv": ["sleep"]})
    rows = audit().stdout.splitlines()
    assert rows[0].split() == ["TIME", "WHO", "SANDBOX", "ACTION", "RESULT", "WHAT"]
    assert [row.split()[2:] for row in rows[2:]] == [
        ["local", "cli", "one", "exec", "exit", "7", "echo", "first"],
        ["local", "cli", "two", "exec", "not_found", "echo", "second"],
        ["-", "three", "exec", "…", "sleep"],
    ]
    assert audit("--sandbox", "two").stdout.count("\n") == 2
    assert audit("--sandbox", "id-of-two").stdout == audit("--sandbox", "two").stdout
    assert [row.split() for row in audit("-n", "1").stdout.splitlines()[1:]] == [rows[-1].split()]
    assert audit("--since", "1h").stdout.splitlines() == rows
    assert audit("--since", "2099-01-01").stdout.count("\n") == 1


def test_json_is_the_lines_themselves(state: Path, log: AuditLog, audit: Audit) -> None:
    write(log, "one", "first")
    done = audit("--json")
    assert done.stdout == log_files(state / "audit")[0].read_text()
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2, 3]


def test_nothing_that_a_terminal_obeys(log: AuditLog, audit: Audit) -> None:
    log.append("exec", name=ESCAPES, sandbox=ESCAPES, args={"argv": [ESCAPES], ESCAPES: ESCAPES})
    log.append(ESCAPES, actor=Actor(door=ESCAPES, client=ESCAPES), result=ESCAPES, code=ESCAPES)
    for arguments in ((), ("--json",), ("--verify",), ("--verify", "--json"), ("--head",)):
        shown = audit(*arguments).stdout
        assert all(c.isprintable() or c == "\n" for c in shown), arguments
    assert "\\x1b]0;owned" in audit().stdout  # it is shown, written out


def test_verify_and_heads(state: Path, log: AuditLog, audit: Audit) -> None:
    write(log, "one", "first")
    head = audit("--head").stdout.strip()
    assert head == str(log.head)
    assert json.loads(audit("--head", "--json").stdout) == {
        "seq": log.head.seq, "hash": log.head.hash,
    }  # fmt: skip
    write(log, "one", "second")
    for arguments in (("--verify",), ("--verify", "--against", head), ("--against", head)):
        done = audit(*arguments)
        assert done.returncode == 0, done
        assert "5 lines" in done.stdout
    path = log_files(state / "audit")[0]
    whole = path.read_bytes()

    path.write_bytes(whole.replace(b"first", b"frist"))
    done = audit("--verify")
    assert done.returncode == 1 and "changed: line 2" in done.stdout
    report = json.loads(audit("--verify", "--json").stdout)
    assert report["ok"] is False and report["problems"][0]["line"] == 2

    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert audit("--verify").returncode == 0  # a cut end: only a kept head shows it
    done = audit("--verify", "--against", head)
    assert done.returncode == 1 and "ends at line 2" in done.stdout

    done = audit("--verify", "--against", "rubbish")
    assert done.returncode == 125 and "not a head" in done.stderr


def test_without_a_log(audit: Audit) -> None:
    assert audit().stdout.count("\n") == 1
    assert audit("--verify").returncode == 1
    done = audit("--head")
    assert done.returncode == 125 and "no audit log" in done.stderr
    assert audit("-n", "0").returncode == 2
    assert audit("--since", "soon").returncode == 2


@pytest.mark.parametrize("arguments", [("--json",), ()], ids=["json", "table"])
def test_follow_over_rotation(state: Path, log: AuditLog, arguments: tuple[str, ...]) -> None:
    write(log, "one", "before")
    process = subprocess.Popen(
        [*COMMAND, "audit", "--follow", *arguments],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    seen: list[str] = []
    heard = threading.Condition()

    def listen() -> None:
        assert process.stdout
        for line in process.stdout:
            with heard:
                seen.append(line)
                heard.notify_all()

    listener = threading.Thread(target=listen)
    listener.start()

    def until(word: str) -> None:
        deadline = time.monotonic() + 30
        with heard:
            while not any(word in line for line in seen):
                assert heard.wait(deadline - time.monotonic()), f"{word} did not come"

    try:
        until("before")
        for number in range(300):
            write(log, "one", f"word-{number}-" + "x" * 100)
        until("word-299-")
        assert len(log_files(state / "audit")) > 1
    finally:
        process.terminate()
        process.wait(10)
        listener.join(10)
        process.stdout.close()
    found = [line for line in seen if "word-" in line]
    assert len(found) == 300


def test_with_a_daemon(ask: Json, cli: Cli, box: str) -> None:
    assert cli("exec", box, "--", "sh", "-c", "exit 5").returncode == 5
    done = cli("audit", "--sandbox", box, "-n", "1", "--json")
    begin, end = map(json.loads, done.stdout.splitlines())
    assert begin["actor"]["client"] == "agentkernel-cli" and begin["name"] == box
    assert begin["args"]["argv"] == ["sh", "-c", "exit 5"]
    assert end["of"] == begin["seq"] and end["details"]["exit_code"] == 5
    report = ask("audit", "--verify")
    assert report["ok"] is True


def test_times_people_type() -> None:
    assert abs(values.moment("2h") - (time.time() - 7200)) < 60
    assert values.moment("2026-01-31T12:00:00+00:00") == 1769860800.0


def test_audit_is_light() -> None:
    """It needs neither the server nor the kernel."""
    code = "import sys, agentkernel.cli.audit; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"starlette", "sqlite3", "asyncio", "agentkernel.kernel"} & set(done.stdout.split())
