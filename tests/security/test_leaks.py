"""What a sandbox can read about the host: no path, no host name, no user name, no state.

The control of the search for words: the same words put inside are found in every kind of place.
"""

from __future__ import annotations

import getpass
import os
import platform
import socket
from pathlib import Path

import pytest

from agentkernel.guest.binary import agentd_path
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .conftest import Planted
from .controls import box_without
from .probes import (
    CONTROL,
    INSIDE,
    MARK,
    Box,
    host_text,
    in_private_namespaces,
    outside,
    parse,
    script,
)

MIB = 1 << 20

READ_ABOUT = """
import platform
found = {}
def look(place, text):
    for word in V['words']:
        word = ''.join(word)
        if word in text: found.setdefault(place, []).append(word)
per_process = ('mountinfo', 'mounts', 'mountstats', 'cgroup', 'cpuset', 'uid_map', 'gid_map',
               'environ', 'cmdline', 'maps', 'status', 'stat', 'comm', 'auxv', 'limits', 'io',
               'wchan', 'stack', 'syscall', 'personality', 'attr/current', 'sched', 'sessionid',
               'loginuid', 'timens_offsets', 'numa_maps', 'smaps', 'net/unix', 'net/tcp',
               'net/netlink', 'net/fib_trie', 'net/route', 'net/dev', 'fdinfo/0')
for pid in [*map(str, pids()), 'self']:
    for name in per_process:
        path = '/proc/%s/%s' % (pid, name)
        lines = text(path).splitlines()
        if name in ('mountinfo', 'mounts', 'mountstats', 'maps', 'smaps', 'numa_maps'):
            lines = [l for l in lines if not any(t in l for t in V['trees'])]
        look(path, '\\n'.join(lines))
    for link in ('cwd', 'root', 'exe', *('fd/%d' % n for n in range(16)),
                 *('ns/' + n for n in ('mnt', 'net', 'user', 'pid'))):
        try: look('/proc/%s/%s' % (pid, link), os.readlink('/proc/%s/%s' % (pid, link)))
        except OSError: pass
for directory in ('/proc', '/proc/sys/kernel', '/proc/sys/fs', '/proc/sys/net/core', '/proc/net/',
                  '/proc/tty', '/etc', '/etc/ssl', '/run', '/var/lib', '/root'):
    try: names = os.listdir(directory)
    except OSError: continue
    for name in names:
        path = directory + '/' + name
        if os.path.isfile(path) and name not in ('kmsg', 'kcore'): look(path, text(path))
look('uname', repr(os.uname()))
look('platform', platform.platform())
for name in (socket.gethostname(), socket.getfqdn()): look('host name', name)
for fd in (0, 1, 2):
    try: look('getsockname', repr(socket.socket(fileno=os.dup(fd)).getsockname()))
    except OSError: pass
try: look('login', os.getlogin())
except OSError: pass
answer(found=found)
"""


def words_of_the_host(state: Path, planted: Planted) -> list[str]:
    """What would name this machine, this user, or where sandboxes are kept."""
    words = [str(state), state.name, planted.secret, *(str(file) for file in planted.files)]
    words += ["pytest-of-", "/runs/", str(Path(__file__).parents[2])]
    name = socket.gethostname()
    if len(name) > 3 and name not in ("sandbox", "localhost"):
        words.append(name)
    if os.getuid():
        words += [getpass.getuser(), str(Path.home())]
    return words


async def test_no_word_of_the_host(
    boxes: dict[str, Box], security_state: Path, planted: Planted
) -> None:
    words = words_of_the_host(security_state, planted)
    for profile, box in boxes.items():
        trees = [tree.path for tree in box.sandbox.root.trees]
        # A toolchain's own path is shown on purpose: `info` lists it.
        allowed = [w for w in words if not any(t.startswith(w) for t in trees)]
        inside = await box.probe(
            READ_ABOUT, words=[list(w) for w in allowed], trees=trees or ["\0"]
        )
        assert inside["found"] == {}, profile


async def test_words_that_are_there_are_found(box_kernel: Runs) -> None:
    """Control: the search sees argument lists, environments, files, links and host names."""
    word = "find-this-word"
    async with box_without(box_kernel) as box:
        place = f"mkdir /tmp/{word}; cd /tmp/{word}; echo {word} > /etc/issue.net"
        plant = f"{place}; exec python3 -I - {word}"
        result = await box.run(
            ["sh", "-c", plant],
            stdin=script(READ_ABOUT, {"words": [list(word)], "trees": ["\0"]}),
            env={MARK: INSIDE, "HELD": word},
        )
    places = parse(result.stdout, result.stderr)["found"]
    for place in ("/proc/self/environ", "/proc/self/cmdline", "/proc/self/cwd", "/etc/issue.net"):
        assert place in places, places.keys()


def test_mountinfo_would_name_the_host(tmp_path: Path) -> None:
    """Control: a plain bind mount, as other launchers make them, shows where it came from."""
    source = """
libc.mount(V['path'].encode(), b'/mnt', None, 4096, None)
answer(shown=any(V['path'] in line for line in text('/proc/self/mountinfo').splitlines()))
"""
    assert in_private_namespaces(source, path=str(tmp_path))["shown"]


IDENTITY = """
answer(boot=text('/proc/sys/kernel/random/boot_id').strip(), version=text('/proc/version'),
       total=int(text('/proc/meminfo').split()[1]) * 1024,
       cgroup=[l.split(':', 2)[2] for l in text('/proc/self/cgroup').splitlines()],
       host=socket.gethostname(), machine=text('/etc/machine-id'),
       pids=pids(), comm=text('/proc/1/comm').strip(),
       pattern=text('/proc/sys/kernel/core_pattern'))
"""


async def test_identity_is_its_own(box_kernel: Runs) -> None:
    async with box_without(box_kernel, spec=SandboxSpec(), change=None) as box:
        inside = await box.probe(IDENTITY)
        limit = box.sandbox.blueprint.limits.memory_bytes
        enforced = box.enforces("memory")
    assert inside["boot"] != host_text("/proc/sys/kernel/random/boot_id").strip()
    assert len(inside["boot"]) == 36
    assert platform.version() not in inside["version"]
    assert host_text("/proc/version") != inside["version"]
    if enforced:
        assert inside["total"] <= limit
    assert set(inside["cgroup"]) == {"/"}
    assert inside["host"] == "sandbox"
    if machine := host_text("/etc/machine-id").strip():
        assert machine != inside["machine"].strip()
    assert 1 in inside["pids"] and len(inside["pids"]) <= 4, "processes of somebody else"


async def test_identity_would_be_the_host_s(box_kernel: Runs) -> None:
    """Control: without the replaced files the kernel tells whose it is."""
    async with box_without(box_kernel, "replaced files") as box:
        inside = await box.probe(IDENTITY)
    assert inside["boot"] == host_text("/proc/sys/kernel/random/boot_id").strip()
    assert inside["version"] == host_text("/proc/version")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(inside["total"] - total) < total // 10


async def test_the_agent_s_file_name_stays_outside(
    box_kernel: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel names a process after the file it was started from: PID 1 has to name itself."""
    binary = tmp_path / "name-of-a-file"
    binary.write_bytes(agentd_path().read_bytes())
    binary.chmod(0o755)
    monkeypatch.setenv("AGENTKERNEL_AGENTD", str(binary))
    async with box_without(box_kernel) as box:
        inside = await box.probe(
            "answer(names=[text('/proc/%d/comm' % p).strip() for p in pids()])"
        )
    assert binary.name not in inside["names"]
    assert "agentd" in inside["names"]


async def test_two_sandboxes_have_two_boot_ids(box: Box, other: Box) -> None:
    first, second = await box.probe(IDENTITY), await other.probe(IDENTITY)
    assert first["boot"] != second["boot"]


IDS = """
answer(uid_map=[l.split() for l in text('/proc/self/uid_map').splitlines()],
       gid_map=[l.split() for l in text('/proc/self/gid_map').splitlines()],
       groups=os.getgroups(), setgroups=text('/proc/self/setgroups').strip())
"""


async def test_id_maps_do_not_name_the_user(box: Box) -> None:
    """A map read inside speaks of ids of the outer namespace, none of which is the host's."""
    inside = await box.probe(IDS)
    for key in ("uid_map", "gid_map"):
        assert inside[key], "no map"
        for _, behind, count in inside[key]:
            assert int(behind) + int(count) <= 65_537, inside[key]
    if box.ids == "single":
        assert set(inside["groups"]) <= {0, 65534}, "a group of the host by number"
    else:
        assert set(inside["groups"]) <= {0}


async def test_host_processes_cannot_be_seen(box: Box) -> None:
    """Pids of the host mean nothing inside: the test's own neither exists nor can be signalled."""
    source = """
seen = []
for pid in V['pids']:
    if pid in pids(): continue  # a process of the sandbox that happens to have the number
    for act in (lambda: os.kill(pid, 0), lambda: os.pidfd_open(pid), lambda: os.getpgid(pid),
                lambda: os.listdir('/proc/%d' % pid), lambda: os.sched_getaffinity(pid)):
        seen.append(attempt(act))
answer(seen=seen)
"""
    inside = await box.probe(source, pids=[os.getpid(), os.getppid(), 2])
    assert set(inside["seen"]) <= {"ESRCH", "ENOENT", "EINVAL"}, inside["seen"]
    control = outside(source.replace("if pid in pids(): continue", ""), pids=[os.getpid()])
    assert set(control["seen"]) == {"ok"}, "control: outside the same calls find it"


async def test_environment_of_the_caller_stays_outside(box: Box, planted: Planted) -> None:
    inside = await box.probe("answer(names=sorted(os.environ), values=list(os.environ.values()))")
    assert planted.secret not in inside["values"]
    assert "AK_PLANTED" not in inside["names"]
    assert {"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY"}.isdisjoint(
        inside["names"]
    )
    control = outside("answer(mark=os.environ.get('PATH'))", prefix=("env", f"{MARK}={CONTROL}"))
    assert control["mark"] == os.environ.get("PATH", os.defpath), "control: env does pass outside"


@pytest.mark.parametrize("user", ["root", "user"])
async def test_home_is_not_the_host_s(box: Box, user: str) -> None:
    if box.ids == "single" and user == "user":
        pytest.skip("one id: the sandbox has no second user")
    home = "/root" if user == "root" else "/home/user"
    inside = await box.probe("answer(names=os.listdir(V['home']))", user=user, home=home)
    trees = [tree.path for tree in box.sandbox.root.trees if tree.path.startswith(home + "/")]
    shown = {Path(tree).relative_to(home).parts[0] for tree in trees}
    private = {name for name in inside["names"] if name.startswith(".")} - shown
    outside_names = set(os.listdir(Path.home())) if os.access(Path.home(), os.R_OK) else set()
    common = private & outside_names - {".bashrc", ".profile", ".cache", ".local", ".config"}
    assert not common, f"dotfiles of the host: {common}"
