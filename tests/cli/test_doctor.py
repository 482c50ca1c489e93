"""`doctor` on this machine, and on machines that are made to lack something."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentkernel.cli import probing
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client.results import ProbeResult
from agentkernel.kernel import health

from .conftest import COMMAND, Cli


def findings(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    return {entry["what"]: entry for entry in json.loads(done.stdout)["findings"]}


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    """A state directory that has no daemon."""
    path = tmp_path / "state"
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    return path


def test_a_machine_that_runs_these_tests_is_fit(cli: Cli, daemon_dir: Path) -> None:
    cli("sandbox", "list")
    done = cli("doctor", "--json")
    assert done.returncode == 0, done.stdout
    found = findings(done)
    wanted = {"kernel", "agentd", "state directory", "native backend", "user namespaces", "overlay"}
    wanted |= {"idmapped mounts", "seccomp", "control groups", "records", "daemon", "leftovers"}
    assert wanted <= found.keys()
    assert all(found[what]["state"] == "ok" for what in wanted - {"control groups"})
    assert "process" in found["daemon"]["detail"]
    text = cli("doctor").stdout
    assert b"ok    seccomp" in text and b"\x1b" not in text


def test_without_agentd(cli: Cli, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKERNEL_AGENTD", "/no/such/agentd")
    done = cli("doctor", "--json")
    assert done.returncode == 1
    found = findings(done)
    assert found["agentd"]["state"] == found["native backend"]["state"] == "fail"
    assert "correct AGENTKERNEL_AGENTD" in found["agentd"]["hint"]
    assert found["isolation"]["detail"].startswith("not known")
    assert b"unfit: agentd, native backend" in cli("doctor").stdout


def test_agentd_for_another_machine(
    cli: Cli, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "agentd"
    other.write_bytes(b"\x7fELF" + b"\0" * 14 + (8).to_bytes(2, "little") + b"\0" * 64)
    other.chmod(0o755)
    monkeypatch.setenv("AGENTKERNEL_AGENTD", str(other))
    assert "is no program for" in findings(cli("doctor", "--json"))["agentd"]["detail"]


def test_a_state_directory_that_others_may_read(cli: Cli, fresh: Path) -> None:
    fresh.mkdir(mode=0o755)
    assert "mode 755" in health.state_directory(str(fresh)).detail
    assert health.state_directory("/proc/nothing").state == "fail"


def test_leftovers_are_named(cli: Cli, fresh: Path) -> None:
    (fresh / "sandboxes" / ("a" * 20)).mkdir(parents=True)
    (fresh / "runs" / ("b" * 20)).mkdir(parents=True)
    (fresh / "runs" / ("b" * 20) / "lock").touch()
    fresh.chmod(0o700)
    assert health.leftovers(str(fresh), {"a" * 20}).detail.startswith("1 runs"), "control: a row"
    finding = health.leftovers(str(fresh), set())
    assert finding.state == "warn"
    assert "1 sandboxes without a record" in finding.detail
    (fresh / "api.sock").touch()
    found = findings(cli("doctor", "--json"))
    assert "nobody answers" in found["daemon"]["detail"]
    assert "1 runs whose owner is gone" in found["leftovers"]["detail"]


def test_wrong_files_are_found(cli: Cli, fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "agentkernel.toml").write_text("[limits]\npids = 'x'\n")
    (tmp_path / "xdg" / "agentkernel").mkdir(parents=True)
    (tmp_path / "xdg" / "agentkernel" / "config.toml").write_text("[limits]\npids = 99999\n")
    fresh.mkdir(mode=0o700)
    (fresh / "trust.json").write_text("{")
    done = cli("doctor", "--json")
    found = findings(done)
    assert done.returncode == 1
    assert found["agentkernel.toml"]["state"] == found["trust"]["state"] == "fail"
    assert found["config.toml"]["state"] == "ok"


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_only_where_it_is_wanted(
    fresh: Path, no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, "doctor"], stdout=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert process.wait(timeout=50) == 0
    assert (b"\x1b[32m" in seen) is (no_color == "")


def test_probe_of_a_fresh_sandbox(cli: Cli) -> None:
    before = json.loads(cli("sandbox", "list", "--json").stdout)
    done = cli("doctor", "--probe", "--json")
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr)
    body = json.loads(done.stdout)
    assert body["fit"] is True and body["sandbox"]["fresh"] is True
    assert {finding["state"] for finding in body["findings"]} == {"closed", "open"}
    assert json.loads(cli("sandbox", "list", "--json").stdout) == before, "it is removed"


def test_probe_of_a_sandbox_as_a_table(cli: Cli, box: str) -> None:
    done = cli("doctor", "--probe", box)
    assert done.returncode == 0, done
    text = done.stdout.decode()
    assert "\nsystem calls\n" in text and "\x1b" not in text
    (mount,) = (line for line in text.splitlines() if " call.mount " in line)
    assert mount.split() == ["closed", "call.mount", "mount", "file", "systems", "(EPERM)"]
    (chroot,) = (line for line in text.splitlines() if " call.chroot " in line)
    assert chroot.split()[0] == "open" and "by the profile: CAP_SYS_CHROOT" in chroot
    assert "0 open or unknown that should be closed" in text
    missing = cli("doctor", "--probe", "no-such-sandbox")
    assert missing.returncode == 125 and b"no sandbox" in missing.stderr


@pytest.mark.parametrize("backend", ["runc", "gvisor"])
async def test_probe_of_a_sandbox_of_another_engine(
    backend: str, cli: Cli, need_engine: Callable[[str], Awaitable[None]]
) -> None:
    """A daemon that found the sandbox again, after its owner's end, knows what made it."""
    await need_engine(backend)
    name = f"probed-{backend}"
    made = cli("sandbox", "create", name, "--backend", backend)
    assert made.returncode == 0, made.stderr
    try:
        assert cli("daemon", "restart").returncode == 0
        done = cli("doctor", "--probe", name, "--json")
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr)
        body = json.loads(done.stdout)
        (chroot,) = (f for f in body["findings"] if f["name"] == "call.chroot")
        assert body["fit"] and ("sentry" in chroot["reason"]) is (backend == "gvisor")
    finally:
        assert cli("sandbox", "remove", name).returncode == 0


def test_something_open_is_exit_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's sandboxes have no hole to show, so this is the answer of one that has."""
    entry = {"group": "system calls", "opens": "x", "detail": "", "answers": {"root": "ok"}}
    findings = [
        {**entry, "name": "call.a", "state": "open", "expected": False, "reason": None},
        {**entry, "name": "call.b", "state": "unknown", "expected": False, "reason": None},
        {**entry, "name": "call.c", "state": "open", "expected": True, "reason": "meant \x1b[31m"},
    ]
    body = {"fit": False, "users": ["root"], "findings": findings, "notes": ["a note"]}

    class Holed:
        id, name = "0", "holed"

        def probe(self) -> ProbeResult:
            return ProbeResult.of(body)

    monkeypatch.setattr(Sandbox, "connect", lambda name, transport: Holed())
    assert probing.main("holed", as_json=False) == 1
    text = capsys.readouterr().out
    assert "OPEN    call.a  x; not meant to be (ok)" in text
    assert "?       call.b  x; not answered (ok)" in text
    assert "\x1b" not in text and "note: a note" in text
    assert text.endswith("unfit: call.a, call.b\n")
    assert probing.main("holed", as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["fit"] is False
