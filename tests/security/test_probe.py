"""The users' probe: in a sound sandbox every line is as it is meant to be, and for each group there
is a control, a place that lacks a guard, where it says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.backends.local.backend import Launch
from agentkernel.backends.oci import config
from agentkernel.errors import (
    AgentKernelError,
    GuestProtocolError,
    GuestTimeoutError,
    ResourceExhaustedError,
    UnsupportedError,
)
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import start_command
from agentkernel.kernel.probe import running
from agentkernel.kernel.probe.catalogue import CATALOGUE, GROUPS
from agentkernel.kernel.probe.findings import ProbeFinding, ProbeResult
from agentkernel.kernel.probe.judge import judge
from agentkernel.kernel.probe.report import parse_report
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec, expand

from .controls import Change, box_without, with_capabilities, with_limits
from .probes import Box


@pytest.fixture(scope="module")
async def sound(boxes: dict[str, Box]) -> AsyncIterator[dict[str, ProbeResult]]:
    """What the probe says of the three profiles, with every guard in place."""
    yield {name: await running.probe_sandbox(box.sandbox) for name, box in boxes.items()}


def by_name(result: ProbeResult) -> dict[str, ProbeFinding]:
    return {finding.name: finding for finding in result.findings}


def wrong(result: ProbeResult) -> set[str]:
    return {finding.name for finding in result.findings if not finding.expected}


@pytest.mark.parametrize("profile", ["permissive", "moderate", "restrictive"])
async def test_a_sound_sandbox_is_fit(profile: str, sound: dict[str, ProbeResult]) -> None:
    result = sound[profile]
    assert wrong(result) == set()
    assert result.fit
    assert len(result.findings) == len(CATALOGUE)
    assert len(result.users) + len(result.notes) == 2, "each user was tried, or it is said why not"
    for finding in result.findings:
        assert finding.state == "closed" or finding.reason, finding


async def test_stricter_profiles_have_less_open(sound: dict[str, ProbeResult]) -> None:
    opened = {
        profile: {f.name for f in result.findings if f.state == "open"}
        for profile, result in sound.items()
    }
    assert opened["restrictive"] < opened["moderate"] <= opened["permissive"] | {"limit.memory"}
    assert "call.ptrace" in opened["moderate"] - opened["restrictive"]


async def without(kernel: Runs, *guards: str, change: Change | None = None) -> ProbeResult:
    """Of a sandbox that lacks something, judged as if it were an ordinary one."""
    async with box_without(kernel, *guards, change=change) as box:
        sandbox: Any = Ordinary(box.sandbox)
        return await running.probe_sandbox(sandbox)


ENGINES = ("runc", "crun", "gvisor")


@pytest.fixture(params=ENGINES)
async def engine(
    request: pytest.FixtureRequest, need_engine: Callable[[str], Awaitable[None]]
) -> str:
    await need_engine(request.param)
    name: str = request.param
    return name


@pytest.mark.parametrize("profile", ["permissive", "restrictive"])
async def test_a_sound_sandbox_of_another_engine_is_fit(
    engine: str, profile: str, box_kernel: Runs
) -> None:
    spec = SandboxSpec(backend=engine, profile=profile)
    async with box_without(box_kernel, spec=spec) as box:
        result = await running.probe_sandbox(box.sandbox)
    assert wrong(result) == set()
    assert result.fit
    for finding in result.findings:
        assert finding.state == "closed" or finding.reason, finding
        words = finding.reason or ""
        assert engine != "gvisor" or "user namespace" not in words, finding
        assert engine == "gvisor" or "sentry" not in words, finding


async def test_control_of_another_engine_with_more_rights(engine: str, box_kernel: Runs) -> None:
    """Neither a filter nor masks, and two capabilities that nobody should have."""
    spec = SandboxSpec(backend=engine)
    change = with_capabilities("CAP_SYS_ADMIN", "CAP_NET_ADMIN")
    async with box_without(box_kernel, "seccomp", "masks", spec=spec, change=change) as box:
        sandbox: Any = Ordinary(box.sandbox)
        found = wrong(await running.probe_sandbox(sandbox))
    assert {"identity.effective", "identity.bounding", "call.mount", "call.unshare_mnt"} <= found
    assert "call.personality_no_random" in found
    if engine != "gvisor":
        assert {"proc.diskstats", "proc.partitions"} <= found, "gVisor's /proc has nothing to mask"


async def test_control_of_another_engine_with_a_directory_of_the_machine(
    engine: str, box_kernel: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounts(launch: Launch) -> list[dict[str, Any]]:
        source = launch.plan.staged(launch.plan.source(str(tmp_path), writable=True))
        return [config._mount("bind", "/mnt", "rbind", "rw", "nodev", source=source)]

    monkeypatch.setattr(config, "_covered_trees", mounts)
    async with box_without(box_kernel, spec=SandboxSpec(backend=engine)) as box:
        result = await running.probe_sandbox(box.sandbox)
    name = "mount.writable" if engine == "gvisor" else "mount.host_paths"
    assert name in wrong(result)
    assert "/mnt" in by_name(result)[name].detail


class Ordinary:
    """A sandbox that says it was made of the defaults."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.blueprint = expand(SandboxSpec(), owned=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)


async def test_control_without_the_filter(box_kernel: Runs) -> None:
    found = wrong(await without(box_kernel, "seccomp"))
    calls = {"call.keyctl", "call.clone3", "call.add_key", "call.personality_no_random"}
    assert calls <= found
    assert {"call.name_to_handle_at", "call.lsm_list_modules", "call.tiocsetd"} <= found
    assert {"socket.netlink_others"} <= found
    assert not {name for name in found if name.startswith(("mount.", "namespace.", "device."))}


async def test_control_without_masks(box_kernel: Runs) -> None:
    found = wrong(await without(box_kernel, "masks"))
    assert {"proc.cmdline", "proc.diskstats", "proc.interrupts", "proc.partitions"} <= found
    assert {name.partition(".")[0] for name in found} == {"proc"}


async def test_control_with_a_writable_proc(box_kernel: Runs) -> None:
    result = await without(box_kernel, "read-only")
    assert "proc.sys_writable" in wrong(result)
    assert "/proc/sys/" in by_name(result)["proc.sys_writable"].detail


async def test_control_with_the_agents_files_writable(box_kernel: Runs) -> None:
    found = wrong(await without(box_kernel, "agent read-only"))
    assert {"agent.oom_score", "agent.oom_score_of_thread"} <= found


async def test_control_with_the_machines_files(box_kernel: Runs) -> None:
    found = wrong(await without(box_kernel, "replaced files"))
    assert {"machine.boot_id", "machine.version"} <= found


async def test_control_with_more_capabilities(box_kernel: Runs) -> None:
    change = with_capabilities("CAP_SYS_ADMIN", "CAP_SYS_RESOURCE")
    result = await without(box_kernel, "seccomp", change=change)
    if "root" not in result.users:
        pytest.skip("one id that is not root: nobody in the sandbox has capabilities")
    found = wrong(result)
    assert {"identity.effective", "identity.bounding", "call.mount", "call.unshare_mnt"} <= found
    assert by_name(result)["identity.effective"].detail == "CAP_SYS_ADMIN CAP_SYS_RESOURCE"


async def test_control_with_larger_limits(box_kernel: Runs) -> None:
    change = with_limits(tmp_bytes=3 << 30, shm_bytes=2 << 30)
    result = await without(box_kernel, change=change)
    assert {"limit.tmp", "limit.shm"} <= wrong(result)


def outside(*, planted: int) -> ProbeResult:
    """The same program on the machine itself: without a filter, in the machine's network, with its
    files. It has no right over the machine, and PID 1 is a shell of our own."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("no unshare(1) for the control")
    command = [program, "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run([*command, "true"], capture_output=True, timeout=20)
    if tried.returncode:
        pytest.skip(f"no namespaces for the control: {tried.stderr.decode()[:200]}")
    with running._bait() as words:
        done = subprocess.run(
            [*command, "sh", "-c", '"$@"; exit $?', "sh", str(agentd_path()), "probe", *words],
            capture_output=True,
            timeout=60,
            cwd="/",
            pass_fds=(planted,),
            check=True,
        )
    report = parse_report(done.stdout, CATALOGUE)
    host = running.host_facts(None)
    return judge({"root": report}, expand(SandboxSpec(), owned=True), host=host)


async def test_control_outside_of_any_sandbox(
    sound: dict[str, ProbeResult], tmp_path: Path
) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        found = wrong(outside(planted=fd))
    finally:
        os.close(fd)
    assert {"namespace.net", "namespace.ipc", "namespace.uts"} <= found
    assert {"agent.ptrace", "agent.environment", "agent.descriptor_links"} <= found
    assert {"network.host_tcp", "network.host_abstract", "descriptor.inherited"} <= found
    assert {"mount.suid", "device.nodes", "sys.kernel", "sys.class"} <= found
    assert {"identity.no_new_privs", "identity.seccomp", "machine.boot_id"} <= found
    assert "call.clone3" in found
    groups = {name.partition(".")[0] for name in found}
    assert groups | {"proc"} == GROUPS.keys(), "a group without a control"
    assert wrong(sound["moderate"]) == set()


async def test_a_sandbox_in_use_stays_as_it_is(runs: Runs) -> None:
    sandbox = await runs.create(SandboxSpec(pids=8, memory_bytes=64 << 20, best_effort=True))
    show = "ls -A / /tmp /var/tmp /run /root; ls /proc | grep -c '^[0-9]'; cat /proc/self/mountinfo"
    before = await runs.run(sandbox, ["sh", "-c", show])
    result = await running.probe_sandbox(sandbox)
    assert result.fit, wrong(result)
    after = await runs.run(sandbox, ["sh", "-c", show])
    assert after.stdout == before.stdout
    await sandbox.channel.call("ping", seconds=5.0)


async def test_an_image_that_has_nothing(runs: Runs, tmp_path: Path) -> None:
    """No shell, no libc, no /etc/passwd: the probe brings all it needs."""
    image = tmp_path / "image"
    (image / "bin").mkdir(parents=True)
    image.chmod(0o755)
    sandbox = await runs.create(SandboxSpec(image=str(image)))
    result = await running.probe_sandbox(sandbox)
    assert result.fit, wrong(result)
    assert "root" in result.users


@pytest.mark.parametrize("pids", [4, 5, 6])
async def test_no_process_to_spare_is_said(pids: int, runs: Runs) -> None:
    """For the file, the program or a try: wherever the last one goes, it is the same error."""
    sandbox = await runs.create(SandboxSpec(pids=pids, best_effort=True))
    by = {line.what: line.enforced_by for line in sandbox.effective}
    if "control group" not in by["pids"]:
        pytest.skip("processes are counted by user here: agentd's do not count with the guest's")
    words = ["sh", "-c", "sleep 60 & echo up; wait"]
    process = start_command(sandbox, words, ProcessOptions())
    try:
        assert await process.output() is not None, "agentd, a supervisor, sh and sleep are four"
        with pytest.raises(ResourceExhaustedError, match="no room for the probe's processes"):
            await running.probe_sandbox(sandbox)
    finally:
        process.kill()
        while await process.output() is not None:
            pass
        process.release()
    assert (await running.probe_sandbox(sandbox)).fit, "control: without the others"


BAD: dict[str, tuple[str, type[AgentKernelError]]] = {
    "garbage": ("echo garbage", GuestProtocolError),
    "nothing": ("exit 0", GuestProtocolError),
    "failure": ("exit 3", GuestProtocolError),
    "crash": ("kill -SEGV $$", GuestProtocolError),
    "twice": (
        """l='{"try":"call.mount","answer":"ok","values":[]}'; echo "$l"; echo "$l" """,
        GuestProtocolError,
    ),
    "huge": ("head -c 8388608 /dev/zero", GuestProtocolError),
    "endless": ("while :; do echo '{}'; done", GuestTimeoutError),
    "silent": ("sleep 60", GuestTimeoutError),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_program_in_the_probes_place(
    case: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest can replace the file before it is run: that is a typed error and leaves nothing."""
    source, kind = BAD[case]
    impostor = tmp_path / "impostor"
    impostor.write_text(f"#!/bin/sh\n{source}\n")
    sandbox = await runs.create(SandboxSpec())
    monkeypatch.setattr(running, "agentd_path", lambda: impostor)
    monkeypatch.setattr(running, "RUN_SECONDS", 2.0)
    with pytest.raises(kind):
        await running.probe_sandbox(sandbox)
    left = await runs.run(sandbox, ["sh", "-c", "ls -A /tmp /run /var/tmp | grep probe"])
    assert left.stdout == b""
    await sandbox.channel.call("ping", seconds=5.0)


async def test_whoever_goes_away_leaves_nothing(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\ntouch /tmp/runs; sleep 60\n")
    sandbox = await runs.create(SandboxSpec())
    files = GuestFiles(sandbox.channel)
    monkeypatch.setattr(running, "agentd_path", lambda: impostor)
    probing = asyncio.ensure_future(running.probe_sandbox(sandbox))
    async with asyncio.timeout(20):
        while not await files.exists("/tmp/runs"):
            assert not probing.done(), probing
            await asyncio.sleep(0.01)
        assert len(await files.list("/tmp")) == 2, "control: the program is there"
        probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing
        assert [entry.name for entry in await files.list("/tmp")] == ["runs"]
        wait = "while cat /proc/[0-9]*/comm | grep -qx sleep; do :; done"
        assert (await runs.run(sandbox, ["sh", "-c", wait])).status.exit_code == 0


async def test_a_place_that_takes_no_programs(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await runs.create(SandboxSpec())
    monkeypatch.setattr(running, "_PLACES", ("/no/such/directory", "/dev/shm", "/tmp"))
    assert (await running.probe_sandbox(sandbox)).fit, "/dev/shm is noexec, /tmp is not"
    monkeypatch.setattr(running, "_PLACES", ("/dev/shm",))
    with pytest.raises(UnsupportedError, match="no place"):
        await running.probe_sandbox(sandbox)
    monkeypatch.setattr(running, "_PLACES", ("/no/such/directory",))
    with pytest.raises(AgentKernelError):
        await running.probe_sandbox(sandbox)


async def test_the_bait_is_gone_afterwards() -> None:
    with running._bait() as words:
        places: list[tuple[int, Any]] = [
            (socket.AF_UNIX, f"\0{words[1]}"),
            (socket.AF_INET, ("127.0.0.1", int(words[3]))),
        ]
        for family, address in places:
            with socket.socket(family, socket.SOCK_STREAM) as client:
                client.connect(address)
    for family, address in places:
        with (
            socket.socket(family, socket.SOCK_STREAM) as client,
            pytest.raises(ConnectionRefusedError),
        ):
            client.connect(address)
