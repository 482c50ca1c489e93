"""OCI runtimes: what they get to run with, and what is refused. What they do is in
tests/conformance."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps, launcher
from agentkernel.backends.oci import gvisor
from agentkernel.backends.oci.backend import RuncBackend
from agentkernel.backends.oci.gvisor import GvisorBackend
from agentkernel.backends.oci.programs import find_program
from agentkernel.conformance.bench import processes_below
from agentkernel.errors import HostError, LaunchError, UnenforceableError, UnsupportedError
from agentkernel.kernel.checks import check_backends
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec, expand

RUNC = SandboxSpec(backend="runc", toolchains=False)
needs_runc = pytest.mark.skipif(
    find_program("runc", "runc") is None, reason="runc is not installed"
)
only_root = pytest.mark.skipif(not idmaps.is_host_root(), reason="a range of ids takes root")


def status(pid: int, *names: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: found[name].split()[0] for name in names}


def mounts(pid: int | str) -> str:
    return Path(f"/proc/{pid}/mountinfo").read_text()


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@needs_runc
@only_root
async def test_nothing_of_it_has_a_right_on_the_machine(runs: Runs) -> None:
    """Keeper and agentd have ids of the sandbox's range, and the keeper no capability at all."""
    sandbox = await runs.create(RUNC)
    keeper, agentd = sorted(pid for pid, _ in processes_below(sandbox.pid))
    assert keeper == sandbox.pid
    for pid in (keeper, agentd):
        assert int(status(pid, "Uid")["Uid"]) >= 0x70000000
        own = os.readlink(f"/proc/{os.getpid()}/ns/user")
        assert os.readlink(f"/proc/{pid}/ns/user") != own
    assert status(keeper, "CapEff", "CapPrm", "NoNewPrivs") == {
        "CapEff": "0000000000000000",
        "CapPrm": "0000000000000000",
        "NoNewPrivs": "1",
    }
    # Control: what it would be without a user namespace around it.
    assert status(os.getpid(), "Uid")["Uid"] == "0"


@needs_runc
async def test_no_mount_of_it_is_the_machine_s(runs: Runs) -> None:
    sandbox = await runs.create(RUNC)
    inside = await runs.run(sandbox, ["cat", "/proc/self/mountinfo"])
    assert b"agentd" not in inside.stdout
    assert sandbox.id not in mounts("self")
    assert sandbox.id in mounts(sandbox.pid), "control: the keeper has the runtime's directory"


async def test_a_runtime_that_is_not_there(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_RUNC", "/no/such/runc")
    with pytest.raises(HostError, match="AGENTKERNEL_RUNC names no program") as caught:
        await RuncBackend(state_dir).create(expand(RUNC, owned=True))
    assert caught.value.hint
    assert not os.listdir(state_dir / "runs")


async def test_a_runtime_that_fails_says_why(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words are in the error, and nothing is left."""
    script = 'while [ "$1" != --log ]; do shift; done; echo \'{"msg":"no way"}\' > "$2"; exit 3'
    monkeypatch.setenv("AGENTKERNEL_RUNC", str(program(tmp_path / "runc", script)))
    with pytest.raises(LaunchError, match="could not start the sandbox: no way"):
        await runs.create(RUNC)
    assert not os.listdir(runs.state_dir / "runs")


async def test_a_runtime_that_starts_nothing(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_RUNC", str(program(tmp_path / "runc", "exit 0")))
    with pytest.raises(LaunchError):
        await runs.create(RUNC)
    assert not os.listdir(runs.state_dir / "runs")


async def test_a_runtime_that_hangs(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch has a deadline, and all of it ends then."""
    monkeypatch.setattr(launcher, "LAUNCH_DEADLINE_S", 1.0)
    mark = f"1000.{os.getpid()}"
    script = f"(sleep {mark} & sleep {mark}) & exec sleep {mark}"
    monkeypatch.setenv("AGENTKERNEL_RUNC", str(program(tmp_path / "runc", script)))
    with pytest.raises(LaunchError, match="did not finish"):
        await runs.create(RUNC)
    assert not os.listdir(runs.state_dir / "runs")
    assert not [pid for pid in os.listdir("/proc") if mark in command_of(pid)]


async def test_gvisor_platforms_are_tried_and_the_answer_is_kept(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In order, until one runs a command; not again while program and kernel are the same."""
    monkeypatch.setenv("AGENTKERNEL_GVISOR", str(program(tmp_path / "runsc", "exit 1")))
    tried: list[str] = []

    async def answer(_self: object, platform: str, _blueprint: object) -> str | None:
        tried.append(platform)
        return None if platform == "ptrace" else "no"

    monkeypatch.setattr(GvisorBackend, "_try", answer)
    blueprint = expand(SandboxSpec(backend="gvisor"), owned=True)
    maps = idmaps.single_maps(0)
    for _ in range(2):
        backend = GvisorBackend(tmp_path)
        await backend.refuse(blueprint, maps)
        assert backend.platform == "ptrace"
    assert tried == ["systrap", "ptrace"]
    os.utime(tmp_path / "runsc", (1, 1))
    await GvisorBackend(tmp_path).refuse(blueprint, maps)
    assert len(tried) == 4, "another program is tried anew"


async def test_gvisor_that_runs_nothing_says_what_was_tried(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENTKERNEL_GVISOR", str(program(tmp_path / "runsc", "exit 1")))
    with pytest.raises(HostError, match="runs nothing here") as caught:
        await GvisorBackend(state_dir).create(expand(SandboxSpec(backend="gvisor"), owned=True))
    for platform in gvisor.PLATFORMS:
        assert platform in caught.value.message
    assert not os.listdir(state_dir / "runs")


async def test_limits_and_ids_that_can_not_be(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENTKERNEL_GVISOR", str(program(tmp_path / "runsc", "exit 1")))
    monkeypatch.setenv("AGENTKERNEL_RUNC", str(program(tmp_path / "runc", "exit 1")))
    limited = expand(SandboxSpec(backend="gvisor", pids=64), owned=True)
    with pytest.raises(UnenforceableError, match="--pids can't be enforced by gvisor"):
        await GvisorBackend(state_dir, platform="ptrace").create(limited)
    other = expand(SandboxSpec(backend="runc", user="user"), owned=True)
    for backend in (RuncBackend(state_dir), GvisorBackend(state_dir, platform="ptrace")):
        with pytest.raises(UnsupportedError) as caught:
            await backend.refuse(other, idmaps.single_maps(1000))
        assert "--user root" in (caught.value.hint or "")
    assert not os.listdir(state_dir / "runs")


@needs_runc
async def test_setup_tries_it_truly(state_dir: Path) -> None:
    (check,) = await check_backends(state_dir, "runc")
    assert (check.found, check.supported) == (True, True)
    assert check.works, check.detail
    assert check.isolation and check.isolation.startswith("shared kernel")
    assert check.features["pid1_guarded"] is True


async def test_setup_says_why_not(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENTKERNEL_RUNC", str(program(tmp_path / "runc", "exit 3")))
    (check,) = await check_backends(state_dir, "runc")
    assert not check.works
    assert "runc could not start the sandbox" in check.detail
