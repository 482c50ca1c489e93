"""The daemon as the command line sees it: it comes when needed, once; losing it loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentkernel
from agentkernel import Sandbox, errors
from agentkernel.client.daemon import Daemon

from .conftest import COMMAND, Cli, Json


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of its own, which has no daemon yet."""
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path / "state"
    subprocess.run([*COMMAND, "sandbox", "gc", "--older-than", "1ms"], timeout=50, check=True)
    subprocess.run([*COMMAND, "daemon", "stop"], timeout=50, check=True)


def daemons(state: Path) -> list[int]:
    """Every process that serves this state directory."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and f"AGENTKERNEL_STATE_DIR={state}".encode() in environment:
            found.append(int(entry))
    return found


def test_many_that_find_none_start_one(fresh: Path) -> None:
    commands = [
        subprocess.Popen([*COMMAND, "sandbox", "list", "--json"], stdout=subprocess.PIPE)
        for _ in range(5)
    ]
    for process in commands:
        output, _ = process.communicate(timeout=50)
        assert process.returncode == 0
        assert json.loads(output) == {"sandboxes": []}
    assert len(daemons(fresh)) == 1


def test_killed_daemon_loses_nothing(fresh: Path) -> None:
    sandbox = Sandbox.create(name="survivor")
    job = sandbox.jobs.start("echo before; sleep 2; echo after; exit 6")
    status = subprocess.run(
        [*COMMAND, "daemon", "status", "--json"], capture_output=True, timeout=50, check=True
    )
    first = json.loads(status.stdout)["pid"]
    os.kill(first, signal.SIGKILL)
    Daemon().wait_gone(first)
    # The next call starts another: the same objects go on working.
    assert sandbox.exec("echo there").stdout == "there\n"
    assert daemons(fresh) != [first]
    assert "".join(chunk.text for chunk in job.output()) == "before\nafter\n"
    assert job.wait().exit_code == 6


def test_restart_keeps_sandboxes_and_changes_the_process(fresh: Path) -> None:
    sandbox = Sandbox.create(name="stays")
    before = daemons(fresh)
    done = subprocess.run(
        [*COMMAND, "daemon", "restart", "--json"], capture_output=True, timeout=50, check=True
    )
    assert json.loads(done.stdout)["running"] is True
    assert daemons(fresh) not in ([], before)
    assert sandbox.exec("echo on").stdout == "on\n"


def test_status_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "none"))
    for words, code in ((["status", "--json"], 1), (["stop"], 0), (["logs"], 0)):
        command = [*COMMAND, "daemon", *words]
        done = subprocess.run(command, capture_output=True, timeout=50, check=False)
        assert done.returncode == code, done
    assert daemons(tmp_path / "none") == []


def test_status(cli: Cli, ask: Json) -> None:
    cli("sandbox", "list")
    body = ask("daemon", "status")
    assert body["running"] is True
    assert {"version", "pid", "state_dir", "sandboxes", "jobs", "uptime_seconds"} <= body.keys()
    assert b"process %d" % body["pid"] in cli("daemon", "status").stdout
    assert "serving" in "".join(ask("daemon", "logs")["lines"])


def test_why_it_does_not_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "damaged"
    state.mkdir(mode=0o700)
    (state / "state.db").write_bytes(b"not a database at all" * 1000)
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(state))
    with pytest.raises(errors.StateCorruptError):
        Sandbox.list()
    done = subprocess.run(
        [*COMMAND, "sandbox", "list"], capture_output=True, timeout=50, check=False
    )
    assert done.returncode == 125
    assert done.stderr.startswith(b"agentkernel: ")
    assert b"Traceback" not in done.stderr


def test_another_version_is_said(daemon_dir: Path) -> None:
    script = (
        "import agentkernel; agentkernel.__version__ = '99.0';"
        "from agentkernel.cli.main import main; main(['sandbox', 'list'])"
    )
    command = [COMMAND[0], "-c", script]
    subprocess.run([*COMMAND, "sandbox", "list"], timeout=50, check=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert "this is 99.0" in done.stderr
    assert "hint: `agentkernel daemon restart`" in done.stderr


def test_an_older_daemon_is_said_and_its_restart_loses_nothing(cli: Cli, fresh: Path) -> None:
    """A really running sandbox and job, under a daemon that says it is of another version."""
    script = (
        "import agentkernel; agentkernel.__version__ = '0.0.1';"
        "from agentkernel.cli.main import main; main(['serve', '--foreground'])"
    )
    older = subprocess.Popen(
        [COMMAND[0], "-c", script, "serve"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert older.stdout is not None and b"ready" in older.stdout.readline()
    sandbox = Sandbox.create(name="stays", kept=True)
    assert sandbox.exec("echo kept > /root/file; sleep 600 & echo $!").exit_code == 0
    job = sandbox.jobs.start("echo before; read line; echo after $line; exit 6", stdin=True)
    inside = sandbox.exec("cat /proc/1/stat").stdout.split()[21]

    words = ("exec", "stays", "--", "echo", "hi")
    said = cli(*words)
    assert (said.stdout, said.returncode) == (b"hi\n", 0)
    assert said.stderr.splitlines() == [
        b"agentkernel: the daemon is version 0.0.1, this is %s" % agentkernel.__version__.encode(),
        b"hint: `agentkernel daemon restart` loses nothing: sandboxes and jobs go on",
    ]
    assert b"version 0.0.1" in cli("run", "-q", "--", "true").stderr
    assert b"version 0.0.1" in cli("job", "list", "stays").stderr

    assert cli("daemon", "restart").returncode == 0
    assert older.wait(50) == 0
    older.stdout.close()
    assert daemons(fresh) not in ([], [older.pid])
    assert cli(*words).stderr == b""
    assert sandbox.exec("cat /root/file").stdout == "kept\n"
    assert sandbox.exec("cat /proc/1/stat").stdout.split()[21] == inside, "another process"
    assert job.refresh().state == "running"
    with job.output() as output:
        output.write("it\n")
        assert "".join(chunk.text for chunk in output) == "before\nafter it\n"
    assert job.wait().exit_code == 6
