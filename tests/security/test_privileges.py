"""Capabilities are exactly the profile's, and nothing on a file gives more.

The control of setuid and file capabilities is a program with the bit on the host, where nothing
forbids it, changing to an id that has less than the caller.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.security.capabilities import from_mask, to_mask
from agentkernel.security.profiles import SECURITY_PROFILES

from .attacks import STATUS
from .controls import box_without, with_capabilities
from .probes import Box


@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
async def test_root_has_the_profile_s_capabilities(boxes: dict[str, Box], profile: str) -> None:
    box = boxes[profile]
    inside = await box.probe(STATUS)
    wanted = SECURITY_PROFILES[profile].capabilities
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert from_mask(int(inside[kind], 16)) == wanted, kind
    for kind in ("CapInh", "CapAmb"):
        assert int(inside[kind], 16) == 0, kind
    assert (inside["NoNewPrivs"], inside["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("user", ["user", "1000", "65534", "agent"])
async def test_other_users_have_none(boxes: dict[str, Box], user: str) -> None:
    for profile, box in boxes.items():
        if box.ids == "single":
            pytest.skip("one id: the sandbox has no second user")
        inside = await box.probe(STATUS, user=box.agent_user if user == "agent" else user)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(inside[kind], 16) == 0, (profile, kind)
        assert "0" not in inside["Uid"].split()
        assert (inside["NoNewPrivs"], inside["Seccomp"]) == ("1", "2")


async def test_a_sandbox_of_user_has_none(box_kernel: Runs) -> None:
    async with box_without(box_kernel, spec=SandboxSpec(user="user")) as box:
        inside = await box.probe(STATUS)
    assert inside["Uid"].split() == ["1000"] * 4
    assert int(inside["CapEff"], 16) == int(inside["CapBnd"], 16) == 0


async def test_wider_capabilities_would_show(box_kernel: Runs) -> None:
    """Control: the masks come from the blueprint, not from what a kernel would give anyhow."""
    change = with_capabilities("CAP_NET_RAW", "CAP_MKNOD")
    async with box_without(box_kernel, change=change) as box:
        inside = await box.probe(STATUS)
    extra = to_mask({"CAP_NET_RAW", "CAP_MKNOD"})
    assert int(inside["CapEff"], 16) & extra == extra


# -- set-user-id and file capabilities ----------------------------------------------------------

FILE_CAPABILITY = struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0x1FF, 0)  # all, effective
PREPARE = """
import shutil
results = {}
for place in V['places']:
    path = place + '/taken'
    shutil.copy('/proc/self/exe', path)
    os.chmod(path, 0o6755)
    results[place] = [oct(os.stat(path).st_mode & 0o7777),
                      attempt(os.setxattr, path, 'security.capability', bytes.fromhex(V['caps']))]
answer(results=results)
"""
PLACES = ["/tmp", "/home/user", "/dev/shm", "/run", "/usr/local"]


async def test_bits_on_files_give_nothing(box_kernel: Runs) -> None:
    """Guest root makes setuid-root and capable copies of a program; nobody gains by running one."""
    tried = 0
    async with box_without(box_kernel, spec=SandboxSpec(profile="permissive")) as box:
        made = await box.probe(PREPARE, places=PLACES, caps=FILE_CAPABILITY.hex())
        assert {mode for mode, _ in made["results"].values()} <= {"0o6755", "0o4755"}, made
        bounds = SECURITY_PROFILES["permissive"].capabilities
        code = "print(open('/proc/self/status').read())"
        for place in PLACES:
            for user in ("root", "user") if box.ids != "single" else ("root",):
                result = await box.run([f"{place}/taken", "-I", "-c", code], user=user)
                if result.status.outcome.value == "not_started":
                    assert result.status.errno == "EACCES", result.status  # noexec
                    continue
                lines = [line for line in result.stdout.decode().splitlines() if ":" in line]
                fields = dict(line.split(":", 1) for line in lines)
                have = from_mask(int(fields["CapEff"], 16))
                assert have <= (bounds if user == "root" else frozenset()), place
                assert set(fields["Uid"].split()) == ({"0"} if user == "root" else {"1000"}), place
                tried += 1
    assert tried, "not one of the copies ran"


async def test_setuid_programs_of_the_machine_give_nothing(box: Box) -> None:
    if box.ids == "single":
        pytest.skip("one id: the sandbox has no second user")
    watch = """
import subprocess
p = subprocess.Popen([V['path']], stdin=subprocess.PIPE, stdout=-3, stderr=-3)
wait_for(lambda: os.readlink('/proc/%d/exe' % p.pid) == os.path.realpath(V['path'])
         if p.poll() is None else True, 1.0)
uids = status(p.pid).get('Uid', '1000').split() if p.poll() is None else ['1000']
p.kill()
answer(uids=uids)
"""
    for program in ("su", "mount", "passwd", "newgrp", "pkexec", "sudo", "fusermount", "ping"):
        path = shutil.which(program)
        if path is None or not path.startswith("/usr") or not os.stat(path).st_mode & stat.S_ISUID:
            continue
        inside = await box.probe(watch, path=path, user="user")
        assert set(inside["uids"]) == {"1000"}, program


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file of another id")
def test_setuid_works_where_nothing_forbids_it(tmp_path: Path) -> None:
    """Control: a set-user-id copy changes the effective id, and not under no_new_privs."""
    program, setpriv = shutil.which("id"), shutil.which("setpriv")
    if not program or not setpriv:
        pytest.skip("no id(1) or setpriv(1) for the control")
    # The directory is the test's own (0700), and the id has less than root: harmless outside too.
    copy = shutil.copy(program, tmp_path / "id")
    os.chown(copy, 65534, 65534)
    os.chmod(copy, 0o4755)
    plain = subprocess.run([copy, "-u"], capture_output=True, text=True)
    assert plain.stdout.strip() == "65534"
    guarded = subprocess.run(
        [setpriv, "--no-new-privs", copy, "-u"], capture_output=True, text=True
    )
    assert guarded.stdout.strip() == "0"


async def test_every_mount_is_nosuid(boxes: dict[str, Box]) -> None:
    """no_new_privs is one guard; the other is that no mount honours the bits at all."""
    source = "answer(lines=text('/proc/self/mountinfo').splitlines())"
    for profile, box in boxes.items():
        for line in (await box.probe(source))["lines"]:
            options, point = line.split()[5].split(","), line.split()[4]
            assert "nosuid" in options, (profile, line)
            assert "nodev" in options or point.startswith("/dev"), (profile, line)


async def test_privileges_cannot_be_regained(box: Box) -> None:
    """Dropped means dropped: raising, ambient sets, other filters and uid 0 again all fail."""
    source = """
PR_CAPBSET_READ, PR_CAP_AMBIENT, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 23, 47, 38, 22
SYS_ADMIN = 21
class Header(ctypes.Structure): _fields_ = [('version', ctypes.c_uint32), ('pid', ctypes.c_int)]
wanted = (ctypes.c_uint32 * 6)(1 << SYS_ADMIN, 1 << SYS_ADMIN, 0, 0, 0, 0)
answer(bounding=libc.prctl(PR_CAPBSET_READ, SYS_ADMIN, 0, 0, 0), results={
    'ambient': err('prctl', PR_CAP_AMBIENT, 2, SYS_ADMIN, 0, 0),
    'capset': err('capset', Header(0x20080522, 0), wanted),
    'new privileges': err('prctl', PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0),
    'seccomp off': err('prctl', PR_SET_SECCOMP, 0, 0, 0, 0),
})
"""
    inside = await box.probe(source)
    assert inside["bounding"] == 0
    assert "ok" not in inside["results"].values(), inside["results"]
    if box.ids == "single":
        return
    change = """
answer(r=[in_child(lambda f=f, a=a: attempt(f, a))['value'] for f, a in
          ((os.setgroups, [V['id']]), (os.setgid, V['id']), (os.setuid, V['id']))])
"""
    assert set((await box.probe(change, id=0, user="user"))["r"]) == {"EPERM"}
    control = await box.probe(change, id=1000)
    assert set(control["r"]) == {"ok"}, "control: root may change to another"
