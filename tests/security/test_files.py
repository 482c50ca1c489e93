"""No file, descriptor, variable or directory of the host is reachable from inside.

`planted` puts one secret into many places of the host before the sandbox exists; `HUNT` looks for
it everywhere inside. The control hides the same secret *inside* and has it found in each place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.guest.processes import Outcome
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .attacks import DESCRIPTORS, HUNT, hunt_values
from .conftest import Planted
from .controls import box_without
from .probes import (
    INSIDE,
    MARK,
    Box,
    host_text,
    in_private_namespaces,
    on_host,
    parse,
    script,
)


@pytest.mark.parametrize("profile", ["moderate", "permissive"])
async def test_the_secret_is_nowhere(boxes: dict[str, Box], planted: Planted, profile: str) -> None:
    box = boxes[profile]
    assert await box.probe(HUNT, **hunt_values(box, planted)) == {"found": []}


async def test_the_hunt_finds_what_is_inside(box_kernel: Runs, planted: Planted) -> None:
    """Control: the secret in a file, a variable, and a descriptor of the sandbox is found."""
    plant = f"""
mkdir -p /var/deep/er; printf %s {planted.secret} > /var/deep/er/file
printf %s {planted.secret} > /tmp/by-descriptor; exec 9< /tmp/by-descriptor; rm /tmp/by-descriptor
exec python3 -I -
"""
    async with box_without(box_kernel) as box:
        result = await box.run(
            ["sh", "-c", plant],
            stdin=script(HUNT, hunt_values(box, planted)),
            env={MARK: INSIDE, "HELD": planted.secret},
        )
        found = parse(result.stdout, result.stderr)["found"]
    assert "/var/deep/er/file" in found
    assert "descriptor" in found
    assert any(place.endswith("/environ") for place in found)


async def test_host_accounts_are_not_shown(box: Box) -> None:
    inside = await box.probe("answer(shadow=text('/etc/shadow'), passwd=text('/etc/passwd'))")
    for word in [line.split(":")[1] for line in host_text("/etc/shadow").splitlines()]:
        assert len(word) < 4 or word not in inside["shadow"], "a password hash of the host"
    for line in host_text("/etc/passwd").splitlines():
        name, uid = line.split(":")[0], int(line.split(":")[2])
        if 1000 <= uid < 60_000 and name != "user":
            assert f"\n{name}:" not in inside["passwd"], "an account of the host"


# -- descriptors --------------------------------------------------------------------------------


async def test_only_stdio_is_open(box: Box) -> None:
    """Two descriptors of the test process are inheritable: neither gets through."""
    inside = await box.probe(DESCRIPTORS)
    assert inside["open"] == [0, 1, 2]
    assert set(inside["kinds"]) <= {"pipe", "socket", "/dev/null"}


def test_inheritable_descriptors_are_inherited(planted: Planted) -> None:
    """Control: a plain child of the test process does get them."""
    code = f"import os; print(os.read({planted.file_fd}, 100).decode())"
    os.lseek(planted.file_fd, 0, os.SEEK_SET)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, close_fds=False
    )
    assert done.stdout.strip() == planted.secret


async def test_working_directory_by_descriptor(box: Box, planted: Planted) -> None:
    """CVE-2024-21626: a working directory of /proc/self/fd/N led runc's child to the host."""
    name = planted.files[0].name
    for base in ("/proc/self/fd", "/proc/1/fd", "/dev/fd"):
        for number in range(3, 24):
            for up in ("", "/..", "/../../../.."):
                result = await box.run(
                    ["sh", "-c", f"pwd -P; ls -a; cat {name}"], cwd=f"{base}/{number}{up}"
                )
                assert planted.secret.encode() not in result.stdout
                if result.status.outcome is not Outcome.NOT_STARTED:
                    first = result.stdout.splitlines()[:1]
                    assert first and first[0].startswith(b"/"), result.stdout[:200]


def test_working_directory_by_descriptor_would_work(planted: Planted) -> None:
    """Control: with the descriptor inherited, the same path leads to the planted file."""
    done = subprocess.run(
        ["sh", "-c", f"cd /proc/self/fd/{planted.directory_fd} && cat {planted.files[0].name}"],
        capture_output=True,
        text=True,
        close_fds=False,
    )
    assert done.stdout == planted.secret


# -- the root -----------------------------------------------------------------------------------

CHROOT_ESCAPE = """
base = V['base']
os.makedirs(base + '/jail', exist_ok=True)
os.chdir(base)
if V['enter']: os.chroot(base)
here = '/' if V['enter'] else base
os.makedirs(here.rstrip('/') + '/jail', exist_ok=True)
os.chdir(here)
top = os.open('.', os.O_RDONLY)
problem = attempt(os.chroot, here.rstrip('/') + '/jail')
os.fchdir(top)
for _ in range(64): os.chdir('..')
problem2 = attempt(os.chroot, '.')
answer(chroot=[problem, problem2], names=sorted(os.listdir('.')),
       found=[f for f in V['files'] if read(f.lstrip('/')) is not None])
"""


@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
async def test_chroot_leads_to_the_sandbox_s_root(
    boxes: dict[str, Box], planted: Planted, profile: str
) -> None:
    box = boxes[profile]
    files = [str(file) for file in planted.files]
    inside = await box.probe(CHROOT_ESCAPE, base="/tmp/a", enter=False, files=files)
    assert inside["found"] == []
    assert {"proc", "dev", "usr"} <= set(inside["names"])
    if profile == "restrictive":
        assert inside["chroot"] == ["EPERM", "EPERM"]
    else:
        assert inside["chroot"] == ["ok", "ok"], "the attack itself did not work"


def test_chroot_alone_is_no_wall(planted: Planted, tmp_path: Path) -> None:
    """Control: out of a mere chroot the same steps lead to the host's root."""
    files = [str(file) for file in planted.files]
    control = in_private_namespaces(CHROOT_ESCAPE, base=str(tmp_path), enter=True, files=files)
    assert control["chroot"] == ["ok", "ok"]
    assert files[0] in control["found"]


async def test_layers_stay_as_they_are(box: Box) -> None:
    """Guest root changes and deletes files of the image; the machine's own do not move."""
    victims = on_host("/usr/bin/env", "/usr/bin/id", "/usr/share")
    before = {path: os.stat(path) for path in victims}
    source = """
changed = []
for path in V['victims']:
    for act in (lambda: os.chmod(path, 0o777), lambda: os.utime(path, (1, 1)),
                lambda: os.rename(path, path + '.gone'), lambda: os.rename(path + '.gone', path)):
        changed.append(attempt(act))
try:
    with open(V['victims'][0], 'ab') as f: f.write(b'x')
    changed.append('ok')
except OSError as e: changed.append(name_of(e.errno))
answer(changed=changed)
"""
    async with box_without(box.kernel) as own:
        inside = await own.probe(source, victims=victims)
    assert "ok" in inside["changed"], "the attack itself did not work"
    for path, old in before.items():
        new = os.stat(path)
        assert (new.st_ino, new.st_mode, new.st_size, new.st_mtime_ns) == (
            old.st_ino, old.st_mode, old.st_size, old.st_mtime_ns,
        ), path  # fmt: skip


async def test_trees_are_read_only(box: Box) -> None:
    """Toolchains are the host's own directories: nothing can be written there, by any path."""
    trees = [tree.path for tree in box.sandbox.root.trees]
    if not trees:
        pytest.skip("no toolchain outside /usr on this machine's PATH")
    source = """
results = {}
for tree in V['trees']:
    for base in (tree, '/proc/self/root' + tree):
        results[base] = [attempt(os.mkdir, base + '/x'), can_open(base + '/x', os.O_CREAT | 2),
                         attempt(os.chmod, base, 0o777), attempt(os.rename, base, base + '.x')]
answer(results=results)
"""
    inside = await box.probe(source, trees=trees)
    for tree, results in inside["results"].items():
        assert "ok" not in results, (tree, results)


# -- an upper on the host's disk ----------------------------------------------------------------


async def test_files_on_disk_are_out_of_reach(box_kernel: Runs, security_state: Path) -> None:
    """A guest's setuid-root file in an idmapped upper is a real one on the host's disk."""
    spec = SandboxSpec(unlimited_disk=True)
    make = (
        "cp /bin/sh /root/su && chmod 4755 /root/su && mkdir /root/d && chmod 0 /root/d && echo ok"
    )
    async with box_without(box_kernel, spec=spec) as box:
        result = await box.run(["sh", "-c", make])
        assert result.stdout == b"ok\n", (result.status, result.stderr)
        upper = security_state / "runs" / box.sandbox.id
        real = [p for p in upper.rglob("su") if p.is_file()]
        assert real and real[0].stat().st_mode & 0o4000, "the attack itself did not work"
        for place in (security_state, security_state / "runs", upper):
            info = place.stat()
            assert info.st_mode & 0o077 == 0, f"{place} can be entered by others"
            assert info.st_uid == os.getuid()
    assert not upper.exists()
