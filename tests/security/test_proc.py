"""/proc, /sys and /dev: what is hidden is empty, what is shown can't be written.

Controls take the masks, the read-only mounts or the filter away and run the same probes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import pytest

from agentkernel.backends.local import procfs
from agentkernel.guest.binary import agentd_path
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .controls import box_without
from .probes import Box, host_text, on_host, outside

READ_ALL = """
sizes = {}
for path in V['paths']:
    try: sizes[path] = len(os.listdir(path))
    except NotADirectoryError: sizes[path] = len(read(path, 4096) or b'')
    except OSError: pass
answer(sizes=sizes)
"""
TELLTALES = ("cmdline", "kallsyms", "keys", "diskstats", "partitions", "interrupts", "locks")


async def test_masked_paths_are_empty(boxes: dict[str, Box]) -> None:
    for profile, box in boxes.items():
        sizes = (await box.probe(READ_ALL, paths=procfs.MASKED))["sizes"]
        assert sizes, "none of them exists"
        assert {path for path, size in sizes.items() if size} == set(), profile


async def test_masked_paths_would_tell(box_kernel: Runs) -> None:
    """Control: without the masks most of them have something to say."""
    async with box_without(box_kernel, "masks") as box:
        sizes = (await box.probe(READ_ALL, paths=procfs.MASKED))["sizes"]
        cmdline = await box.probe("answer(cmdline=text('/proc/cmdline'))")
    there = on_host(*(f"/proc/{name}" for name in TELLTALES))
    silent = [path for path in there if not sizes.get(path)]
    assert len(there) - len(silent) >= 4, silent
    assert cmdline["cmdline"] == host_text("/proc/cmdline")


# What an open for writing must never give: each has been an escape or a fault somewhere.
DANGEROUS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/kernel/poweroff_cmd",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/shmmax",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/fs/protected_symlinks",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/fs/mqueue/queues_max",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/ip_unprivileged_port_start",
    "/proc/sys/net/ipv6/conf/all/forwarding",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/mtrr",
    "/proc/bus/pci/00/00.0",
    "/proc/irq/0/smp_affinity",
    "/proc/irq/default_smp_affinity",
    "/proc/acpi/wakeup",
    "/proc/scsi/scsi",
    "/proc/latency_stats",
    "/proc/timer_stats",
    "/proc/meminfo",
    "/proc/version",
    "/proc/1/oom_score_adj",
    "/proc/1/mem",
    "/proc/1/clear_refs",
    "/proc/1/uid_map",
    "/proc/1/setgroups",
    "/proc/self/uid_map",
    "/proc/self/gid_map",
    "/sys/kernel/uevent_helper",
    "/sys/fs/cgroup/release_agent",
    "/sys/power/state",
    "/dev/mem",
    "/dev/kmem",
    "/dev/kmsg",
    "/dev/port",
    "/dev/kvm",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/loop-control",
    "/dev/mapper/control",
    "/dev/vda",
    "/dev/sda",
    "/dev/vsock",
    "/dev/vhost-vsock",
    "/dev/uinput",
    "/dev/console",
    "/dev/tty0",
)
# Nothing is written: opening is enough to know, and safe if the guard should fail.
OPEN_FOR_WRITING = """
answer(results={path: can_open(path, os.O_WRONLY | os.O_NONBLOCK) for path in V['paths']})
"""


@pytest.mark.parametrize("user", ["root", "agent"])
@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
async def test_nothing_dangerous_can_be_opened_for_writing(
    boxes: dict[str, Box], profile: str, user: str
) -> None:
    box = boxes[profile]
    chosen = box.agent_user if user == "agent" else None
    results = (await box.probe(OPEN_FOR_WRITING, paths=DANGEROUS, user=chosen))["results"]
    opened = [path for path, result in results.items() if result == "ok"]
    # Writable by right of being one's own, and useless: a map is written once, and was.
    assert set(opened) <= {"/proc/self/uid_map", "/proc/self/gid_map"}
    source = "answer(r=[attempt(os.write, os.open(p, os.O_WRONLY), b'0 0 1') for p in V['paths']])"
    inside = await box.probe(source, paths=opened, user=chosen)
    assert "ok" not in inside["r"]


async def test_no_sysctl_file_is_writable(box: Box) -> None:
    """All of /proc/sys, not only the files somebody thought of."""
    source = """
opened = []
for directory, _, files in os.walk('/proc/sys'):
    for name in files:
        path = os.path.join(directory, name)
        if can_open(path, os.O_WRONLY | os.O_NONBLOCK) == 'ok': opened.append(path)
answer(opened=opened)
"""
    assert (await box.probe(source))["opened"] == []


async def test_sysctls_would_be_writable(box_kernel: Runs) -> None:
    """Control: root of the guest owns the sysctls of its namespaces; only the mount stops it."""
    source = """
path = '/proc/sys/kernel/msgmax'
def write():
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b'9999')
write = attempt(write)
answer(write=write, after=text(path).strip())
"""
    async with box_without(box_kernel) as box:
        inside = await box.probe(source)
        assert inside["write"] == "EROFS"
        assert inside["after"] != "9999"
    async with box_without(box_kernel, "read-only") as box:
        inside = await box.probe(source)
        assert (inside["write"], inside["after"]) == ("ok", "9999")


@pytest.mark.parametrize("nested", [False, True], ids=["", "nested user namespaces"])
async def test_masks_cannot_be_taken_off(box_kernel: Runs, nested: bool) -> None:
    """CVE-2025-31133 and its like: unmounting, covering, moving, replacing what hides /proc.

    With nested user namespaces the attacker has every capability in a mount namespace of its own;
    mounts that came from outside are locked there, and a new /proc would reveal too much.
    """
    source = """
MS_BIND, MS_REC, MS_REMOUNT, MS_MOVE, MNT_DETACH = 4096, 16384, 32, 8192, 2
if V['nested']:
    CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID = 0x10000000, 0x20000, 0x20000000
    unshared = err('unshare', CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
    if os.fork():
        _, state = os.wait()
        os._exit(os.waitstatus_to_exitcode(state))
else: unshared = None
hidden, solid = V['hidden'], V['solid']
results = {}
results['umount'] = err('umount2', hidden.encode(), 0)
results['detach'] = err('umount2', hidden.encode(), MNT_DETACH)
results['umount all'] = err('umount2', b'/proc', MNT_DETACH)
results['remount'] = err('mount', None, b'/proc/sys', None, MS_REMOUNT | MS_BIND, None)
results['move'] = err('mount', b'/proc/sys', b'/mnt', None, MS_MOVE, None)
results['unlink'] = attempt(os.unlink, hidden)
results['rename'] = attempt(os.rename, hidden, hidden + 'x')
results['link'] = attempt(os.symlink, '/etc', solid)
results['rmdir'] = attempt(os.rmdir, '/proc/sys')
results['rename proc'] = attempt(os.rename, '/proc', '/proc2')
results['new proc'] = err('mount', b'proc', b'/mnt', b'proc', 0, None)
results['bind above'] = err('mount', b'/proc', b'/mnt', None, MS_BIND, None)  # without submounts
results['sysfs'] = err('mount', b'sysfs', b'/mnt', b'sysfs', 0, None)
results['open_tree'] = err('open_tree', -100, b'/proc', 1)
answer(results=results, unshared=unshared, size=len(read(hidden) or b''),
       below=len(read('/mnt/' + os.path.basename(hidden)) or b''),
       writable=can_open('/proc/sys/kernel/msgmax', os.O_WRONLY))
"""
    spec = SandboxSpec(nested_userns=nested)
    async with box_without(box_kernel, spec=spec) as box:
        inside = await box.probe(source, nested=nested, hidden="/proc/cmdline", solid="/proc/kcore")
    assert inside["unshared"] == ("ok" if nested else None), "the attack itself did not work"
    assert [k for k, v in inside["results"].items() if v == "ok"] == []
    assert (inside["size"], inside["below"]) == (0, 0)
    assert inside["writable"] != "ok"


async def test_a_new_proc_would_be_given(box_kernel: Runs) -> None:
    """Control: with nothing hidden, a nested namespace does mount a /proc of its own."""
    source = """
unshared = err('unshare', 0x10000000 | 0x20000 | 0x20000000)
if os.fork():
    _, state = os.wait()
    os._exit(os.waitstatus_to_exitcode(state))
answer(unshared=unshared, proc=err('mount', b'proc', b'/mnt', b'proc', 0, None),
       size=len(read('/mnt/cmdline') or b''))
"""
    off = ("masks", "read-only", "agent read-only", "replaced files")
    async with box_without(box_kernel, *off, spec=SandboxSpec(nested_userns=True)) as box:
        inside = await box.probe(source)
    assert (inside["unshared"], inside["proc"]) == ("ok", "ok")
    assert inside["size"] > 0


async def test_sys_shows_the_own_group_only(boxes: dict[str, Box]) -> None:
    """Of /sys there is the sandbox's own control group where it has one, read-only."""
    if not os.listdir("/sys"):
        pytest.skip("this machine itself shows nothing at /sys")
    source = """
names, writable, procs = [], [], set()
for directory, below, files in os.walk('/sys'):
    names += [os.path.relpath(os.path.join(directory, n), '/sys') for n in below]
    if directory.count('/') > 1 and attempt(os.mkdir, directory + '/x') == 'ok':
        os.rmdir(directory + '/x')
        if directory.count('/') > 3: writable.append(directory)  # those above are the upper's
    for name in files:
        path = os.path.join(directory, name)
        if can_open(path, os.O_WRONLY | os.O_NONBLOCK) == 'ok': writable.append(path)
        if name in ('cgroup.procs', 'tasks'): procs |= set(text(path).split())
answer(names=names, writable=writable, procs=sorted(map(int, procs)))
"""
    for profile, box in boxes.items():
        inside = await box.probe(source)
        for name in set(inside["names"]) - {"fs", "fs/cgroup"}:
            assert name.startswith("fs/cgroup/") and name.count("/") == 2, (profile, name)
        assert inside["writable"] == []
        # 0 would be a process of the host, which has no number in here.
        assert 0 not in inside["procs"]
    assert len(os.listdir("/sys")) > 3, "control: the host's has more"


# CVE-2022-0492: with namespaces of its own the guest mounts its control group again, writable.
CGROUP_ESCAPE = """
unshared = err('unshare', 0x10000000 | 0x20000 | 0x2000000)
mounted, opened = {}, []
for kind, options in V['kinds']:
    where = '/mnt/' + (options or kind)
    os.mkdir(where)
    mounted[options or kind] = err('mount', b'x', where.encode(), kind.encode(), 0,
                                   options.encode() or None)
    for directory, _, files in os.walk(where):
        for name in files:
            path = os.path.join(directory, name)
            if can_open(path, os.O_WRONLY | os.O_NONBLOCK) == 'ok': opened.append(path)
        if mounted[options or kind] == 'ok' and attempt(os.mkdir, directory + '/x') == 'ok':
            opened.append(directory)
answer(unshared=unshared, mounted=mounted, opened=opened,
       control=err('mount', b'x', b'/mnt', b'tmpfs', 0, None))
"""


async def test_limits_cannot_be_lifted_from_nested_namespaces(box_kernel: Runs) -> None:
    kinds = [("cgroup2", ""), *(("cgroup", c) for c in ("memory", "pids", "cpu", "devices"))]
    async with box_without(box_kernel, spec=SandboxSpec(nested_userns=True)) as box:
        inside = await box.probe(CGROUP_ESCAPE, kinds=kinds)
    assert (inside["unshared"], inside["control"]) == ("ok", "ok"), "the attack itself did not work"
    assert inside["opened"] == [], inside


# -- /dev ---------------------------------------------------------------------------------------

DEVICES = {"null", "zero", "full", "random", "urandom", "tty"}
LINKS = {"fd", "stdin", "stdout", "stderr", "ptmx"}


async def test_dev_holds_what_it_must(box: Box) -> None:
    source = """
modes = {}
for name in os.listdir('/dev'):
    info = os.lstat('/dev/' + name)
    modes[name] = [info.st_mode, os.major(info.st_rdev), os.minor(info.st_rdev)]
writes = {
    'file': can_open('/dev/x', os.O_CREAT | os.O_WRONLY), 'dir': attempt(os.mkdir, '/dev/y'),
    'unlink': attempt(os.unlink, '/dev/null'), 'chmod': attempt(os.chmod, '/dev/null', 0o777),
    'replace': attempt(os.rename, '/dev/zero', '/dev/null'),
    'link': attempt(os.symlink, '/etc/passwd', '/dev/z')}
answer(modes=modes, writes=writes, pts=sorted(os.listdir('/dev/pts')), shm=os.listdir('/dev/shm'),
       zero=read('/dev/zero', 16)[:16].hex(), null=len(read('/dev/null')))
"""
    inside = await box.probe(source)
    assert set(inside["modes"]) == DEVICES | LINKS | {"pts", "shm"}
    kinds = {name for name, (mode, _, _) in inside["modes"].items() if stat.S_ISCHR(mode)}
    assert kinds == DEVICES
    assert not any(stat.S_ISBLK(mode) for mode, _, _ in inside["modes"].values())
    for name, (mode, major, minor) in inside["modes"].items():
        if stat.S_ISCHR(mode):
            real = os.stat(f"/dev/{name}").st_rdev
            assert (major, minor) == (os.major(real), os.minor(real))
    assert "ok" not in inside["writes"].values(), inside["writes"]
    assert inside["pts"] == ["ptmx"], "a terminal of somebody else"
    assert inside["shm"] == []
    assert inside["zero"] == "00" * 16 and inside["null"] == 0, "control: the devices work"


MKNOD = """
results = {}
for name, kind, major, minor in V['nodes']:
    for place in V['places']:
        path = place + '/' + name
        made = attempt(os.mknod, path, kind | 0o666, os.makedev(major, minor))
        results[path] = [made, can_open(path, os.O_RDONLY | os.O_NONBLOCK)]
        if made == 'ok': os.unlink(path)
answer(results=results)
"""
NODES = [
    ("mem", stat.S_IFCHR, 1, 1),
    ("port", stat.S_IFCHR, 1, 4),
    ("zero", stat.S_IFCHR, 1, 5),
    ("kmsg", stat.S_IFCHR, 1, 11),
    ("vda", stat.S_IFBLK, 254, 0),
    ("sda", stat.S_IFBLK, 8, 0),
    ("loop", stat.S_IFBLK, 7, 0),
    ("whiteout", stat.S_IFCHR, 0, 0),
]


@pytest.mark.parametrize("profile", ["moderate", "permissive"])
async def test_device_nodes_are_useless(boxes: dict[str, Box], profile: str) -> None:
    """`permissive` even has CAP_MKNOD: in a user namespace it makes no device that opens."""
    places = ["/tmp", "/root", "/dev/shm", "/run", "/usr/local"]
    inside = await boxes[profile].probe(MKNOD, nodes=NODES, places=places)
    opened = {path: r for path, r in inside["results"].items() if r[1] == "ok"}
    assert opened == {}
    nested = await boxes[profile].probe(MKNOD, nodes=[("fifo", stat.S_IFIFO, 0, 0)], places=places)
    assert {made for made, _ in nested["results"].values()} == {"ok"}, "control: mknod itself works"


@pytest.mark.skipif(os.getuid() != 0, reason="only root of the host can make a device node")
def test_device_nodes_would_open(tmp_path: Path) -> None:
    """Control: the same node (a harmless one) made on the host opens."""
    control = outside(MKNOD, nodes=[("zero", stat.S_IFCHR, 1, 5)], places=[str(tmp_path)])
    assert control["results"] == {f"{tmp_path}/zero": ["ok", "ok"]}


# -- CVE-2019-5736: the runtime's own binary ----------------------------------------------------

OVERWRITE = """
import subprocess
results, target = [], V['target']
def reopen(path):
    'opens a running program and tries to open it again for writing once it has ended'
    try: fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e: return ['open', name_of(e.errno)]
    end = time.monotonic() + 1.0
    while True:
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            result = can_open('/proc/self/fd/%d' % fd, flags)
            if result == 'ok': return ['write', 'ok']
        if result != 'ETXTBSY' or time.monotonic() > end: return ['write', result]
        time.sleep(0.01)
if target == 'agentd':
    for pid in pids():
        if pid != os.getpid(): results.append(reopen('/proc/%d/exe' % pid))
    results.append(can_open('/proc/1/exe', os.O_WRONLY))
else:
    import shutil
    shutil.copy(shutil.which('sleep'), '/tmp/victim')
    child = subprocess.Popen(['/tmp/victim', '0.2'])
    wait_for(lambda: os.readlink('/proc/%d/exe' % child.pid) == '/tmp/victim')
    results.append(reopen('/proc/%d/exe' % child.pid))
answer(results=results)
"""


async def test_the_agent_s_binary_cannot_be_overwritten(box_kernel: Runs) -> None:
    binary = agentd_path()
    before = hashlib.sha256(binary.read_bytes()).hexdigest(), os.stat(binary).st_mtime_ns
    trap = """#!/proc/self/exe
"""
    async with box_without(box_kernel) as box:
        # agentd executes the script, so for a moment the interpreter *is* agentd's own binary.
        made = await box.run(
            ["sh", "-c", "cat > /tmp/trap && chmod 755 /tmp/trap"], stdin=trap.encode()
        )
        assert made.status.exit_code == 0
        for argv in (["/tmp/trap"], ["/tmp/trap", "launch", "0", "1", "2"]):
            await box.run(argv, timeout_seconds=5.0)
        grab = """
results = []
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for pid in pids():
        path = '/proc/%d/exe' % pid
        try: fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError: continue
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
            result = can_open('/proc/self/fd/%d' % fd, flags)
            if result == 'ok' and 'python' not in os.readlink(path): results.append(pid)
        os.close(fd)
answer(results=results)
"""
        racing = asyncio.ensure_future(box.probe(grab))
        for _ in range(40):
            await box.run(["/tmp/trap"], timeout_seconds=5.0)
        assert (await racing)["results"] == []
        inside = await box.probe(OVERWRITE, target="agentd")
        same = await box.probe(OVERWRITE, target="agentd", user=box.agent_user)
        control = await box.probe(OVERWRITE, target="copy")
        await box.answers()
    assert "ok" not in str(inside["results"]) + str(same["results"])
    assert control["results"] == [["write", "ok"]], "control: a writable program can be taken so"
    assert before == (hashlib.sha256(binary.read_bytes()).hexdigest(), os.stat(binary).st_mtime_ns)
