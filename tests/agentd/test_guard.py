"""What a process gets from agentd, and what it can do to it. Every attack on PID 1 is also run
against a process without a guard, where it has to succeed: an attack that fails for another reason
proves nothing."""

from __future__ import annotations

import os
import platform
import struct
from pathlib import Path

import pytest

from .conftest import Boot, Compile
from .harness import DOCKER_CAPS, Guest, Host

# Attacks the process argv[1] and says of each act whether it was allowed.
ATTACK = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
static void say(const char *what, long result) {
    printf("%s %s\n", what, result < 0 ? strerror(errno) : "ALLOWED");
    fflush(stdout);
}
static int opened(int pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return open(path, flags);
}
int main(int argc, char **argv) {
    int pid = atoi(argv[1]);
    char buffer[64];
    int fd = opened(pid, "mem", O_RDWR);
    say("mem", fd);
    say("maps", (fd = opened(pid, "maps", O_RDONLY)) < 0 ? -1 : read(fd, buffer, 1));
    say("environ", (fd = opened(pid, "environ", O_RDONLY)) < 0 ? -1 : read(fd, buffer, 1));
    say("auxv", (fd = opened(pid, "auxv", O_RDONLY)) < 0 ? -1 : read(fd, buffer, 1));
    say("fd", opened(pid, "fd/0", O_RDONLY));
    say("root", opened(pid, "root", O_RDONLY));
    say("cwd", opened(pid, "cwd", O_RDONLY));
    say("exe", opened(pid, "exe", O_RDONLY));
    int pidfd = syscall(SYS_pidfd_open, pid, 0);
    say("getfd", pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    struct iovec local = {buffer, 8}, remote = {(void *)0x10, 8};
    long n = syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
    say("vm_readv", n < 0 && errno == EFAULT ? 0 : n); /* EFAULT: allowed, only not mapped */
    say("kcmp", syscall(SYS_kcmp, pid, pid, 0, 0, 0));
    say("seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
    say("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
    return 0;
}
"""

ACTS = ["mem", "maps", "environ", "auxv", "fd", "root", "cwd", "exe", "getfd", "vm_readv", "kcmp"]
ACTS += ["seize"]  # `attach` is denied after a seizure that worked


def verdicts(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


@pytest.fixture
def attack(compile_: Compile) -> str:
    return compile_("attack", ATTACK)


def test_a_process_of_the_same_uid_can_do_nothing_to_pid_1(host: Host, attack: str) -> None:
    found = verdicts(host.output([attack, "1"]))
    allowed = [act for act in ACTS if found[act] == "ALLOWED"]
    assert allowed == []
    assert "ALLOWED" not in found["attach"]
    control = verdicts(host.output(f"sleep 60 & exec {attack} $!"))
    assert {act: control[act] for act in ACTS} == dict.fromkeys(ACTS, "ALLOWED")


def test_nor_to_its_supervisor(host: Host, attack: str) -> None:
    found = verdicts(host.output(f"exec {attack} $PPID"))
    assert [act for act in ACTS if found[act] == "ALLOWED"] == []


@pytest.mark.parametrize("caps", [0, DOCKER_CAPS | 1 << 28])
def test_nor_with_other_capabilities(boot: Boot, attack: str, caps: int) -> None:
    """None at all; and all that agentd has, where only not being dumpable protects it."""
    host = boot(caps=caps).connect()
    assert caps == 0 or host.hello["guard"]["caps"] == caps
    found = verdicts(host.output([attack, "1"]))
    assert [act for act in ACTS if found[act] == "ALLOWED"] == []
    control = verdicts(host.output(f"sleep 60 & exec {attack} $!"))
    assert {act: control[act] for act in ACTS} == dict.fromkeys(ACTS, "ALLOWED")


def test_agentd_keeps_a_capability_that_no_process_has(host: Host) -> None:
    guard = host.hello["guard"]["caps"]
    assert guard & ~DOCKER_CAPS and guard & DOCKER_CAPS == DOCKER_CAPS


def test_nothing_of_the_boot_configuration_can_be_read(guest: Guest, host: Host) -> None:
    out = host.output("tr '\\0' ' ' </proc/1/cmdline; ls /proc/1/fd 2>&1 || true; env")
    assert guest.token.hex() not in out and "TOKEN" not in out


def test_no_descriptor_leaks(host: Host) -> None:
    out = host.output(["ls", "-l", "/proc/self/fd"], stdin=b"")
    descriptors = [line.split()[-3:] for line in out.splitlines() if "->" in line]
    numbers = [entry[0] for entry in descriptors]
    assert numbers == ["0", "1", "2", "3"], out  # 3 is ls looking at the directory
    assert descriptors[3][2].startswith("/proc/")
    assert all(entry[2].startswith("pipe:") for entry in descriptors[:3])


def test_no_descriptor_leaks_on_a_terminal(host: Host) -> None:
    out = host.output(["ls", "-l", "/proc/self/fd"], pty={"rows": 24, "cols": 200})
    links = [line.split("-> ")[1].strip() for line in out.splitlines() if "->" in line]
    assert len(links) == 4 and all(link.startswith("/dev/pts/") for link in links[:3])


@pytest.mark.parametrize("number", range(3, 12))
def test_no_working_directory_behind_a_descriptor(host: Host, number: int) -> None:
    """The way out of CVE-2024-21626: a cwd that is an inherited descriptor."""
    end = host.run("pwd", cwd=f"/proc/self/fd/{number}").end
    assert end is not None and (end["outcome"], end["stage"]) == ("not_started", "cwd")


def test_nothing_of_the_host_in_the_working_directory(host: Host) -> None:
    assert host.output("readlink /proc/self/cwd") == "/\n"
    for path in ("/proc/1/cwd", "/proc/1/root", "/proc/self/../1/cwd"):
        end = host.run("pwd", cwd=path).end
        assert end is not None and end["stage"] == "cwd", path


def status(host: Host, **args: object) -> dict[str, str]:
    text = host.output(["cat", "/proc/self/status"], **args)
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


@pytest.mark.parametrize("caps", [0, DOCKER_CAPS, 1 << 10, DOCKER_CAPS & ~(1 << 8)])
def test_capabilities_are_exactly_the_mask(boot: Boot, caps: int) -> None:
    found = status(boot(caps=caps).connect())
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(found[name], 16) == caps, name
    for name in ("CapInh", "CapAmb"):
        assert int(found[name], 16) == 0, name
    assert found["NoNewPrivs"] == "1"
    assert found["Groups"].strip() in ("", "0", "65534", "0 65534")


@pytest.mark.root
def test_users_of_a_range(boot: Boot) -> None:
    host = boot(ids="range").connect()
    found = status(host, user="1000:1001")
    assert found["Uid"].split() == ["1000"] * 4
    assert found["Gid"].split() == ["1001"] * 4
    assert found["Groups"].strip() == ""
    for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"):
        assert int(found[name], 16) == 0, name
    root = status(host)
    assert root["Uid"].split() == ["0"] * 4 and int(root["CapEff"], 16) == DOCKER_CAPS
    nobody = status(host, user="nobody")
    assert nobody["Uid"].split() == ["65534"] * 4
    assert int(nobody["CapBnd"], 16) == 0
    assert status(host, user="4321")["Gid"].split() == ["0"] * 4


@pytest.mark.root
def test_a_user_cannot_start_where_it_may_not_be(boot: Boot) -> None:
    host = boot(ids="range").connect()
    host.output("mkdir -p /dev/shm/.agentd-test && chmod 700 /dev/shm/.agentd-test")
    assert host.output("pwd", cwd="/dev/shm/.agentd-test") == "/dev/shm/.agentd-test\n"
    end = host.run("pwd", cwd="/dev/shm/.agentd-test", user="1000").end
    host.output("rmdir /dev/shm/.agentd-test")
    assert end is not None and (end["stage"], end["errno"]) == ("cwd", "EACCES")


@pytest.mark.parametrize(
    ("user", "errno"),
    [("1000", "EPERM"), ("nobody", "EPERM"), ("0:5", "EPERM"), ("no-such-user", "ENOENT"),
     ("root:no-such-group", "ENOENT"), ("", "EINVAL"), ("a:b:c", "EINVAL"), ("0:", "EINVAL"),
     ("99999999999", "ENOENT"), ("-1", "ENOENT")],
)  # fmt: skip
def test_users_that_are_none(host: Host, user: str, errno: str) -> None:
    end = host.run("true", user=user).end
    assert end is not None
    assert (end["outcome"], end["stage"], end["errno"]) == ("not_started", "user", errno)


def test_the_only_user_there_is(host: Host) -> None:
    for user in ("root", "0", "root:root", "0:0"):
        assert host.output("id -u", user=user) == "0\n"


MKDIR_NUMBERS = {"x86_64": (0xC000003E, [83, 258]), "aarch64": (0xC00000B7, [34])}


def seccomp_filter() -> bytes:
    """mkdir and mkdirat fail with ENOTTY, everything else is allowed."""
    arch, numbers = MKDIR_NUMBERS[platform.machine()]
    program = [(0x20, 0, 0, 4), (0x15, 0, len(numbers) + 1, arch), (0x20, 0, 0, 0)]
    for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
        program.append((0x15, left, 0, number))
    program.append((0x06, 0, 0, 0x7FFF0000))
    program.append((0x06, 0, 0, 0x00050000 | 25))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def test_seccomp_filter(boot: Boot) -> None:
    host = boot(seccomp=seccomp_filter()).connect()
    found = status(host)
    assert found["Seccomp"] == "2"
    assert found.get("Seccomp_filters", "1") == "1"
    stream = host.run("mkdir /tmp/never")
    assert b"Inappropriate ioctl" in stream.err
    supervisor = host.output("grep Seccomp: /proc/$PPID/status")
    assert supervisor.split()[1] == "0"


def test_a_filter_that_kills_is_an_honest_end(boot: Boot) -> None:
    kill = struct.pack("<HBBI", 0x06, 0, 0, 0x80000000)
    end = boot(seccomp=kill).connect().run("true").end
    assert end is not None and (end["outcome"], end["signal"]) == ("signaled", 31)


def test_a_broken_filter_is_told(boot: Boot) -> None:
    end = boot(seccomp=b"\xff" * 8).connect().run("true").end
    assert end is not None
    assert (end["outcome"], end["stage"], end["errno"]) == ("not_started", "confine", "EINVAL")


def test_processes_may_not_gain_privileges_from_files(host: Host) -> None:
    assert status(host)["NoNewPrivs"] == "1"


def test_session_keyring_is_its_own(host: Host) -> None:
    text = host.output("cat /proc/keys 2>/dev/null || true")
    rings = [line for line in text.splitlines() if "_ses" in line and "keyring" in line]
    assert all(not line.split()[5].startswith("0 ") for line in rings)


@pytest.mark.skipif(os.getuid() != 0, reason="a user's own limits may be lower")
def test_core_files_are_off(host: Host) -> None:
    assert host.output("ulimit -c; ulimit -Hc") == "0\n0\n"


def test_names_do_not_come_from_the_guests_code(host: Host, guest: Guest) -> None:
    """agentd has no dynamic loader, so no nsswitch module of the guest can be loaded into it."""
    maps = Path(f"/proc/{guest.pid}/maps").read_text()
    if "asan" not in os.environ.get("AGENTD_UNDER_TEST", ""):
        assert ".so" not in maps
    assert host.output("true") == ""


AGENT_UID = "65533"
AGENT_CAPS = "setuid,setgid,setpcap,kill,lease"


def agent_of_another_uid(boot: Boot, binary: Path, **configuration: object) -> Host:
    """agentd as the native engine starts it: an id of its own, a few ambient capabilities."""
    words = ["setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
    caps = ",".join(f"+{name}" for name in AGENT_CAPS.split(",")) + ",+chown,+net_bind_service"
    words += [f"--inh-caps={caps}", f"--ambient-caps={caps}", str(binary)]
    return boot(ids="range", command=words, caps=1 << 0 | 1 << 10, **configuration).connect()


@pytest.mark.root
def test_agentd_with_a_uid_of_its_own(boot: Boot, binary: Path, attack: str) -> None:
    host = agent_of_another_uid(boot, binary, oom_score_adj=77)
    assert host.hello["guard"]["uid"] == int(AGENT_UID)
    found = status(host)
    assert found["Uid"].split() == ["0"] * 4 and found["Gid"].split() == ["0"] * 4
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(found[name], 16) == 1 << 0 | 1 << 10, name
    for name in ("CapInh", "CapAmb"):
        assert int(found[name], 16) == 0, name
    user = status(host, user="1000:1000")
    assert user["Uid"].split() == ["1000"] * 4
    assert {user[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
    assert host.output("cat /proc/self/oom_score_adj", user="1000") == "77\n"
    acts = verdicts(host.output([attack, "1"]))
    assert [act for act in ACTS if acts[act] == "ALLOWED"] == []


@pytest.mark.root
def test_a_guest_without_the_right_cannot_touch_agentd_or_supervisors(
    boot: Boot, binary: Path
) -> None:
    host = agent_of_another_uid(boot, binary)
    script = "for p in 1 $PPID; do kill -KILL $p; kill -STOP $p; done 2>&1; exit 6"
    stream = host.run(script)
    assert stream.end is not None and stream.end["code"] == 6
    assert bytes(stream.out).count(b"not permitted") == 4
    stream = host.run(["prlimit", "--pid", "1", "--nofile=5:5"])
    assert stream.end is not None and stream.end["code"] != 0
    # agentd itself has all the rights it needs over them.
    end = host.run("setsid sleep 60 & exec sleep 60", user="1000", timeout_ms=200).end
    assert end is not None and end["outcome"] == "timeout"
    assert host.call("stats")["procs"] == 0
