"""The attacks that another engine could let through, on each of them, with their controls.

runc, crun and gVisor get the same root, ids and agentd as the native engine, but somebody else
makes the guest's namespaces, or is its kernel. Profile permissive: what holds there holds in the
others. The control is a sandbox of the same engine without filter and masks and with capabilities
that nobody should have, or the machine itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.backends.local import procfs
from agentkernel.errors import GuestFileError
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import Outcome
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.security.capabilities import from_mask
from agentkernel.security.profiles import SECURITY_PROFILES

from .attacks import (
    CONNECT,
    DESCRIPTORS,
    HUNT,
    INTRUDE,
    STATUS,
    hunt_values,
    intrusions,
    planted_addresses,
)
from .conftest import Planted
from .controls import box_without, with_capabilities
from .probes import Box, eventually, host_text, outside

ENGINES = ("runc", "crun", "gvisor")


@pytest.fixture(scope="module", params=ENGINES)
async def engine(
    request: pytest.FixtureRequest,
    need_engine: Callable[[str], Awaitable[None]],
    anyio_backend: str,
) -> str:
    await need_engine(request.param)
    name: str = request.param
    return name


@pytest.fixture(scope="module")
async def box(engine: str, box_kernel: Runs) -> AsyncIterator[Box]:
    spec = SandboxSpec(backend=engine, profile="permissive")
    async with box_without(box_kernel, spec=spec) as box:
        yield box


@pytest.fixture(scope="module")
async def unguarded(engine: str, box_kernel: Runs) -> AsyncIterator[Box]:
    spec = SandboxSpec(backend=engine, profile="permissive")
    change = with_capabilities("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_NET_ADMIN")
    async with box_without(box_kernel, "seccomp", "masks", spec=spec, change=change) as box:
        yield box


# -- files --------------------------------------------------------------------------------------


async def test_the_secret_is_nowhere(box: Box, planted: Planted) -> None:
    assert await box.probe(HUNT, **hunt_values(box, planted)) == {"found": []}
    await box.run(["sh", "-c", f"printf %s {planted.secret} > /var/hidden"])
    found = (await box.probe(HUNT, **hunt_values(box, planted)))["found"]
    await box.run(["rm", "/var/hidden"])
    assert "/var/hidden" in found, "control: what is inside is found"


async def test_links_lead_nowhere_else(box: Box, planted: Planted, tmp_path: Path) -> None:
    """File calls come from the host and follow a guest's links: within the sandbox."""
    target = planted.files[0]
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    up = "/".join([".."] * 30)
    places = ("", "/proc/1/root", "/proc/self/root", f"/proc/1/cwd/{up}", f"/proc/self/cwd/{up}")
    make = "".join(
        f"ln -sfn {place}{target} /tmp/read{n}; ln -sfn {place}{victim} /tmp/write{n}; "
        for n, place in enumerate(places)
    )
    await box.run(["sh", "-c", f"mkdir -p {tmp_path} && {make} echo mine > /etc/own"])
    await box.run(["sh", "-c", "ln -sfn /etc/own /tmp/own; ln -sfn / /tmp/top"])
    files = GuestFiles(box.sandbox.channel)
    for number in range(len(places)):
        with pytest.raises(GuestFileError):
            await files.read(f"/tmp/read{number}")
        try:
            await files.write(f"/tmp/write{number}", b"taken")
        except GuestFileError:
            continue
        assert victim.read_text() == "untouched", places[number]
    with pytest.raises(GuestFileError):
        await files.read(f"/tmp/top/{up}{target}")
    assert victim.read_text() == "untouched"
    assert await files.read("/tmp/own") == b"mine\n", "control: a link within the sandbox"
    assert await files.read(f"/tmp/top/{up}/etc/own") == b"mine\n"


# -- descriptors and programs -------------------------------------------------------------------


async def test_only_stdio_is_open(box: Box, planted: Planted) -> None:
    assert os.get_inheritable(planted.file_fd), "control: there is something to inherit"
    assert (await box.probe(DESCRIPTORS))["open"] == [0, 1, 2]


async def test_working_directory_by_descriptor(box: Box, planted: Planted) -> None:
    """CVE-2024-21626: a working directory of /proc/self/fd/N led runc's child to the host."""
    name = planted.files[0].name
    for base in ("/proc/self/fd", "/proc/1/fd"):
        for number in range(3, 12):
            result = await box.run(
                ["sh", "-c", f"cat {name} ../{name} ../../../../../..{planted.files[0]}"],
                cwd=f"{base}/{number}",
            )
            assert planted.secret.encode() not in result.stdout, (base, number)
    await box.run(["sh", "-c", "echo here > /var/tmp/mark"])
    control = await box.run(["cat", "mark"], cwd="/proc/self/root/var/tmp")
    assert control.stdout == b"here\n", "control: a working directory by way of /proc"


OVERWRITE = """
def take(path):
    'Opened for writing by path, by descriptor, and through a held descriptor; nothing is written'
    results = [can_open(path, os.O_WRONLY), can_open(path, os.O_RDWR)]
    for flags in (os.O_PATH, os.O_RDONLY):
        try: fd = os.open(path, flags)
        except OSError as e:
            results.append(name_of(e.errno))
            continue
        results.append(can_open('/proc/self/fd/%d' % fd, os.O_WRONLY))
        results.append(attempt(os.chmod, '/proc/self/fd/%d' % fd, 0o777))
        os.close(fd)
    return results + [attempt(os.truncate, path, 0), attempt(os.unlink, path)]
def every_supervisor(): return [p for p in pids() if text('/proc/%d/comm' % p).strip() != 'python3']
results = {}
for pid in every_supervisor():
    for place in ['exe'] + ['fd/%d' % n for n in range(3, 14)]:
        results['%d %s' % (pid, place)] = take('/proc/%d/%s' % (pid, place))
for path in V['paths']: results[path] = take(path)
with open('/tmp/own-program', 'wb') as f: f.write(b'x')
answer(results=results, control=take('/tmp/own-program'))
"""


async def test_agentd_s_file_cannot_be_overwritten(box: Box) -> None:
    """CVE-2019-5736: through /proc/PID/exe a guest wrote to runc itself, a file of the machine."""
    before = hashlib.sha256(agentd_path().read_bytes()).digest()
    mode = agentd_path().stat().st_mode
    inside = await box.probe(OVERWRITE, paths=["/run/agentkernel/agentd"])
    assert any(name.startswith("1 ") for name in inside["results"]), "PID 1 was not tried"
    for place, results in inside["results"].items():
        assert "ok" not in results, (place, results)
    assert "ok" in inside["control"], "control: a file of the guest's own"
    assert hashlib.sha256(agentd_path().read_bytes()).digest() == before
    assert agentd_path().stat().st_mode == mode


# -- rights -------------------------------------------------------------------------------------


async def test_capabilities_are_the_profile_s(box: Box, unguarded: Box) -> None:
    inside = await box.probe(STATUS)
    wanted = SECURITY_PROFILES["permissive"].capabilities
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert from_mask(int(inside[kind], 16)) == wanted, kind
    for kind in ("CapInh", "CapAmb"):
        assert int(inside[kind], 16) == 0, kind
    assert (inside["NoNewPrivs"], inside["Seccomp"]) == ("1", "2")
    if box.ids != "single":
        for user in ("user", "65534", box.agent_user):
            inside = await box.probe(STATUS, user=user)
            for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(inside[kind], 16) == 0, (user, kind)
    control = from_mask(int((await unguarded.probe(STATUS))["CapEff"], 16))
    assert "CAP_SYS_ADMIN" in control, "control"


MOUNTS = """
os.makedirs('/tmp/a', exist_ok=True); os.makedirs('/tmp/b', exist_ok=True)
BIND, MOVE, REMOUNT, REC, PRIVATE = 0x1000, 0x2000, 32, 0x4000, 1 << 18
at = b'/tmp/a'
tries = {
    'tmpfs': ('mount', b'x', at, b'tmpfs', 0, None),
    'bind': ('mount', b'/proc', at, None, BIND | REC, None),
    'proc': ('mount', b'x', at, b'proc', 0, None),
    'sysfs': ('mount', b'x', at, b'sysfs', 0, None),
    'cgroup': ('mount', b'x', at, b'cgroup', 0, b'memory'),
    'overlay': ('mount', b'x', at, b'overlay', 0, b'lowerdir=/etc,upperdir=/tmp/b,workdir=/tmp'),
    'new context': ('fsopen', b'tmpfs', 0),
    'new tree': ('open_tree', -100, b'/', 1),
    'namespace': ('unshare', 0x20000),
    'user namespace': ('unshare', 0x10000000),
    'remount': ('mount', None, b'/', None, REMOUNT | BIND, None),
    'propagation': ('mount', None, b'/', None, REC | PRIVATE, None),
    'move': ('mount', b'/tmp', at, None, MOVE, None),
    'pivot_root': ('pivot_root', at, at),
    'unmount': ('umount2', b'/proc/sys', 2),
}
def attack(name):
    result = err(*tries[name])
    if result == 'ok' and tries[name][0] == 'mount': err('umount2', at, 2)
    return result
answer(results={name: in_child(attack, name)['value'] for name in V['names'] or tries})
"""
# Those that leave a sandbox as it was where they succeed.
MOUNTS_TO_TRY = ("tmpfs", "bind", "proc", "new context", "namespace")


async def test_nothing_can_be_mounted(box: Box, unguarded: Box) -> None:
    before = (await box.probe("answer(mounts=text('/proc/self/mountinfo'))"))["mounts"]
    inside = (await box.probe(MOUNTS, names=()))["results"]
    assert {name: result for name, result in inside.items() if result == "ok"} == {}
    after = (await box.probe("answer(mounts=text('/proc/self/mountinfo'))"))["mounts"]
    assert after == before
    control = (await unguarded.probe(MOUNTS, names=MOUNTS_TO_TRY))["results"]
    assert set(control.values()) == {"ok"}, f"control: {control}"


# Numbers of devices of the machine; the last is where its files are.
NODES = """
import stat
found, made = [], []
for place in ('/tmp', '/run', '/root', '/dev', '/dev/shm'):
    for kind, major, minor in V['numbers']:
        path = '%s/node-%s-%d-%d' % (place, kind, major, minor)
        mode = (stat.S_IFBLK if kind == 'b' else stat.S_IFCHR) | 0o600
        if attempt(os.mknod, path, mode, os.makedev(major, minor)) == 'ok': made.append(path)
        for flags in (os.O_RDONLY, os.O_WRONLY):
            if can_open(path, flags | os.O_NONBLOCK) == 'ok': found.append(path)
        attempt(os.unlink, path)
answer(found=found, made=len(made), control=can_open('/dev/null', os.O_WRONLY))
"""


async def test_no_device_of_the_machine_opens(engine: str, box: Box) -> None:
    """Guest root has CAP_MKNOD in this profile. A node opens nothing, where one can be made."""
    root = os.stat("/").st_dev
    numbers = [
        ("c", 1, 1), ("c", 1, 2), ("c", 1, 4), ("c", 1, 11), ("c", 10, 232), ("c", 10, 238),
        ("c", 4, 0), ("c", 5, 1), ("c", 10, 223), ("b", 7, 0), ("b", 8, 0), ("b", 254, 0),
        ("b", 259, 0), ("b", os.major(root), os.minor(root)),
    ]  # fmt: skip
    inside = await box.probe(NODES, numbers=numbers)
    assert inside["found"] == []
    assert inside["control"] == "ok"
    harmless = await box.probe(NODES, numbers=[("c", 1, 3)])
    if engine == "gvisor":
        assert harmless["found"], "control: where a node can be made, a harmless one opens"
    else:
        assert harmless["made"] == 0, "the kernel makes none in a user namespace"


# -- /proc --------------------------------------------------------------------------------------

SHOWN = "answer(shown={path: text(path) for path in V['paths']})"
TELLTALES = (
    "/proc/cmdline",
    "/proc/version",
    "/proc/partitions",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/modules",
    "/proc/swaps",
    "/proc/sys/kernel/random/boot_id",
    "/proc/1/environ",
)


async def test_proc_tells_nothing_of_the_machine(engine: str, box: Box, unguarded: Box) -> None:
    shown = (await box.probe(SHOWN, paths=TELLTALES))["shown"]
    for path, text in shown.items():
        assert not text or text != host_text(path), path
    if engine != "gvisor":
        hidden = (await box.probe(SHOWN, paths=procfs.MASKED))["shown"]
        assert set(hidden.values()) == {""}
        control = (await unguarded.probe(SHOWN, paths=("/proc/cmdline",)))["shown"]
    else:
        control = outside(SHOWN, paths=("/proc/cmdline",))["shown"]
    assert control["/proc/cmdline"] == host_text("/proc/cmdline"), "control"


SETTINGS = """
def write(path, data):
    try: fd = os.open(path, os.O_WRONLY)
    except OSError as e: return name_of(e.errno)
    try: return attempt(os.write, fd, data)
    finally: os.close(fd)
answer(results={path: write(path, data.encode()) for path, data in V['writes'].items()})
"""
# Each would be the machine's, or agentd's: a program that the kernel starts, its limits, its name.
WRITES = {
    "/proc/sys/kernel/core_pattern": "|/tmp/x",
    "/proc/sys/kernel/modprobe": "/tmp/x",
    "/proc/sys/kernel/hostname": "taken",
    "/proc/sys/fs/binfmt_misc/register": ":x:M::x::/tmp/x:",
    "/proc/sys/user/max_user_namespaces": "1000",
    "/proc/sysrq-trigger": "h",
    "/proc/1/comm": "x",
    "/proc/1/mem": "x",
    "/sys/kernel/uevent_helper": "/tmp/x",
    "/sys/fs/cgroup/release_agent": "/tmp/x",
    "/sys/fs/cgroup/cgroup.procs": "0",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "-1",
    "/dev/kmsg": "x",
}


async def test_settings_of_the_machine_can_not_be_written(box: Box) -> None:
    inside = (await box.probe(SETTINGS, writes=WRITES))["results"]
    assert {path for path, result in inside.items() if result == "ok"} == set()
    own = {"/proc/self/comm": "named", "/proc/self/oom_score_adj": "1000"}
    control = (await box.probe(SETTINGS, writes=own))["results"]
    assert set(control.values()) == {"ok"}, "control: those of one's own process"


async def test_settings_of_the_network_stay_inside(engine: str, box: Box) -> None:
    """gVisor's settings can be written, and are the sentry's."""
    path, before = "/proc/sys/net/ipv4/tcp_sack", host_text("/proc/sys/net/ipv4/tcp_sack")
    inside = (await box.probe(SETTINGS, writes={path: "0"}))["results"]
    assert host_text(path) == before != "0\n"
    shown = (await box.probe(SHOWN, paths=[path]))["shown"][path].strip()
    assert (inside[path] == "ok" and shown == "0") is (engine == "gvisor"), (inside, shown)


# -- agentd -------------------------------------------------------------------------------------


async def test_agentd_cannot_be_looked_into(engine: str, box: Box, unguarded: Box) -> None:
    """gVisor shows how much agentd has read and written, and the sentry's numbers of namespaces."""
    harmless = {"io", "ns"} if engine == "gvisor" else set()
    users = (None,) if box.ids == "single" else (None, box.agent_user)
    for user in users:
        inside = await box.probe(INTRUDE, user=user, target=1)
        assert set(intrusions(inside["results"])) <= harmless, user
    await box.answers()
    control = intrusions((await unguarded.probe(INTRUDE, target=0))["results"])
    assert {"mem", "process_vm_readv", "seize", "environ", "exe"} <= set(control), "control"


async def test_a_signal_to_pid_1(engine: str, box: Box, box_kernel: Runs) -> None:
    """Guarded by the kernel; gVisor's guest root ends its own sandbox so, and no other."""
    source = """
victim = os.fork()
if not victim: signal.pause()
os.kill(victim, signal.SIGKILL)
_, state = os.waitpid(victim, 0)
print(os.WTERMSIG(state), flush=True)
for number in (1, 2, 15, 11, 19, 9): attempt(os.kill, 1, number)
answer(state=status(1)['State'].split()[0])
"""
    if box_kernel.backends[engine].features.pid1_guarded:
        inside = await box.probe(source)
        assert inside["state"] in "SR"
        await box.answers()
        return
    async with box_without(box_kernel, spec=SandboxSpec(backend=engine)) as doomed:
        if doomed.ids != "single":
            spared = await doomed.run(["sh", "-c", "kill -9 1"], user="user")
            assert spared.status.exit_code != 0, "another user must not"
            await doomed.answers()
        result = await doomed.run(["sh", "-c", "kill -9 1; sleep 1000"], timeout_seconds=30.0)
        assert result.status.outcome is Outcome.LOST
        await eventually(lambda: not doomed.sandbox.lives(), "the sandbox has ended")
        await box.answers()


# -- the network --------------------------------------------------------------------------------

FAMILIES = """
results = {}
for family in range(46):
    for kind in (1, 2, 3, 5):
        try: socket.socket(family, kind).close()
        except OSError: continue
        results[str(family)] = kind
answer(families=sorted(results, key=int), names=[n for _, n in socket.if_nameindex()],
       routes=text('/proc/net/route').splitlines()[1:], unix=text('/proc/net/unix'))
"""


async def test_the_network_is_loopback(
    engine: str, box: Box, unguarded: Box, planted: Planted
) -> None:
    to = planted_addresses(planted) | {"metadata": [2, ["169.254.169.254", 80]]}
    results = (await box.probe(CONNECT, to=to))["results"]
    assert {label for label, (result, _) in results.items() if result in ("ok", "timeout")} == set()
    inside = await box.probe(FAMILIES)
    assert set(inside["families"]) <= {"1", "2", "10", "16"}
    assert set(inside["names"]) <= {"lo"} and inside["routes"] == []
    assert planted.abstract not in inside["unix"]
    reached = outside(CONNECT, to=planted_addresses(planted))["results"]
    assert {result for result, _ in reached.values()} == {"ok"}, "control: they answer outside"
    # Packet sockets take a right over the network namespace; of the rest a kernel may have none.
    there = {"17"} if engine == "gvisor" else set(outside(FAMILIES)["families"]) - {"17"}
    if more := there - set(inside["families"]):
        control = set((await unguarded.probe(FAMILIES))["families"])
        assert control & more, "control: without the filter there are more families"
