"""The shipped filters in a real kernel, on real system calls and real programs.

Every probe runs twice, with the filter and without: a refusal proves nothing when the machine
refuses by itself. The calls are chosen to be harmless where nothing stops them (descriptors that
are not open, pointers to nowhere, ids nobody has), and each is made in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.security.profiles import SECURITY_PROFILES
from agentkernel.security.seccomp.compiler import compile_profile
from agentkernel.security.seccomp.profile import SHIPPED
from agentkernel.security.seccomp.syscalls import ARCHES, table

from .seccomp_harness import NATIVE, probe, run_filtered

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or NATIVE not in ARCHES, reason="needs Linux on a known architecture"
)

HIGH = 1 << 32
NOBODY = 0x7FFFFFF0  # no such process, no such user
NOWHERE = 1  # a pointer the kernel cannot read

UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DGRAM, RAW, SEQPACKET, SOCK_PACKET = 1, 2, 3, 5, 10

# Name, arguments, and the answer in permissive, moderate and restrictive. "=" is the control's.
PROBES: list[tuple[str, tuple[int, ...], tuple[str, str, str]]] = [
    ("socket", (PACKET, RAW, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (PACKET | HIGH, RAW, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (INET, SOCK_PACKET, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (INET, SOCK_PACKET | 0o2000000, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (VSOCK, STREAM, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (ALG, SEQPACKET, 0), ("EAFNOSUPPORT",) * 3),
    ("socket", (NETLINK, RAW, 12), ("EPROTONOSUPPORT", "EPROTONOSUPPORT", "EAFNOSUPPORT")),
    ("socket", (NETLINK, RAW, 15), ("EPROTONOSUPPORT", "EPROTONOSUPPORT", "EAFNOSUPPORT")),
    ("socket", (NETLINK, RAW, 0), ("=", "=", "EAFNOSUPPORT")),
    ("socket", (NETLINK | HIGH, RAW, HIGH), ("=", "=", "EAFNOSUPPORT")),
    ("socket", (INET, STREAM, 262), ("EPROTONOSUPPORT",) * 3),
    ("socket", (INET, SEQPACKET, 132), ("EPROTONOSUPPORT",) * 3),
    ("socket", (INET6, DGRAM, 136), ("EPROTONOSUPPORT",) * 3),
    ("socket", (UNIX, STREAM, 0), ("=",) * 3),
    ("socket", (UNIX | HIGH, STREAM, 0), ("=",) * 3),
    ("socket", (INET, STREAM, 6), ("=",) * 3),
    ("socket", (INET6, DGRAM, 0), ("=",) * 3),
    ("socketpair", (VSOCK, STREAM, 0, NOWHERE), ("EAFNOSUPPORT",) * 3),
    ("socketpair", (UNIX, STREAM, 0, NOWHERE), ("=",) * 3),
    ("unshare", (0,), ("EPERM",) * 3),
    ("setns", (-1, 0), ("EPERM",) * 3),
    ("clone", (0x10000000 | 0x200,), ("EPERM",) * 3),  # NEWUSER|FS, invalid by itself
    ("clone", (0x10000000 | 0x200 | HIGH,), ("EPERM",) * 3),
    ("clone3", (0, 0), ("ENOSYS",) * 3),
    ("keyctl", (0, -3, 0), ("ENOSYS",) * 3),
    ("add_key", (NOWHERE, NOWHERE, 0, 0, -3), ("ENOSYS",) * 3),
    ("request_key", (NOWHERE, NOWHERE, 0, 0), ("ENOSYS",) * 3),
    ("statmount", (0, 0, 0, 0), ("ENOSYS",) * 3),
    ("io_uring_setup", (0, 0), ("EPERM",) * 3),
    ("io_uring_enter", (-1, 0, 0, 0), ("EPERM",) * 3),
    ("io_uring_register", (-1, 0, 0, 0), ("EPERM",) * 3),
    ("bpf", (0xFFFF, 0, 0), ("EPERM",) * 3),
    ("perf_event_open", (NOWHERE, 0, 0, -1, 0), ("EPERM",) * 3),
    ("userfaultfd", (0x7FFF0000,), ("EPERM",) * 3),
    ("pidfd_getfd", (-1, 0, 0), ("EPERM",) * 3),
    ("process_vm_readv", (NOBODY, 0, 0, 0, 0, 0), ("EPERM",) * 3),
    ("process_vm_writev", (NOBODY, 0, 0, 0, 0, 0), ("EPERM",) * 3),
    ("process_madvise", (-1, 0, 0, 0, 0), ("EPERM",) * 3),
    ("kcmp", (NOBODY, NOBODY, 0, 0, 0), ("EPERM",) * 3),
    ("ptrace", (0x9999, NOBODY, 0, 0), ("=", "=", "EPERM")),
    ("finit_module", (-1, NOWHERE, 0), ("EPERM",) * 3),
    ("memfd_secret", (0x7FFF0000,), ("EPERM",) * 3),
    ("fanotify_init", (0x7FFF0000, 0), ("EPERM",) * 3),
    ("name_to_handle_at", (-1, 0, 0, 0, 0x7FFF0000), ("EPERM",) * 3),
    ("open_by_handle_at", (-1, NOWHERE, 0), ("EPERM",) * 3),
    ("clock_settime", (9999, NOWHERE), ("EPERM",) * 3),
    ("settimeofday", (NOWHERE, 0), ("EPERM",) * 3),
    ("adjtimex", (NOWHERE,), ("EPERM",) * 3),
    ("clock_adjtime", (9999, NOWHERE), ("EPERM",) * 3),
    ("sethostname", (NOWHERE, -1), ("EPERM",) * 3),
    ("ioctl", (-1, 0x5412, 0), ("EPERM",) * 3),
    ("ioctl", (-1, 0x5412 | HIGH, 0), ("EPERM",) * 3),
    ("ioctl", (-1, 0x541C | HIGH << 7, 0), ("EPERM",) * 3),
    ("ioctl", (-1, 0x5423, 0), ("EPERM",) * 3),
    ("ioctl", (-1, 0x5401, 0), ("=",) * 3),
    ("prlimit64", (1, 7, 0, 0), ("EPERM",) * 3),
    ("prlimit64", (1 | HIGH, 7, 0, 0), ("EPERM",) * 3),
    ("prlimit64", (0, 7, 0, 0), ("=",) * 3),
    ("sched_setaffinity", (1, 8, NOWHERE), ("EPERM",) * 3),
    ("sched_setaffinity", (1 | HIGH, 8, NOWHERE), ("EPERM",) * 3),
    ("sched_setaffinity", (0, 8, NOWHERE), ("=", "=", "EPERM")),
    ("sched_setscheduler", (1, 9999, NOWHERE), ("EPERM",) * 3),
    ("sched_setparam", (1, NOWHERE), ("EPERM",) * 3),
    ("sched_setattr", (1, NOWHERE, 0), ("EPERM",) * 3),
    ("setpriority", (2, NOBODY, 0), ("EPERM",) * 3),
    ("setpriority", (2 | HIGH, NOBODY, 0), ("EPERM",) * 3),
    ("setpriority", (3, 1, 0), ("EPERM",) * 3),
    ("setpriority", (0, 0, 0), ("=",) * 3),
    ("ioprio_set", (3, NOBODY, 0), ("EPERM",) * 3),
    ("ioprio_set", (9, 1, 0), ("EPERM",) * 3),
    ("ioprio_set", (9, 0, 0), ("=", "=", "EPERM")),
    ("personality", (0x40000,), ("EPERM",) * 3),
    ("personality", (0xFFFFFFFF,), ("=",) * 3),
    ("personality", (-1,), ("=",) * 3),
    ("mbind", (0, 0, 9999, 0, 0, 0), ("EPERM",) * 3),
    ("landlock_create_ruleset", (0, 0, 1), ("=",) * 3),
    ("getpid", (), ("=",) * 3),
]


def call(name: str, args: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return table(NATIVE)[name], args


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, list[str]]:
    """All probes, without a filter and under each profile."""
    calls = [call(name, args) for name, args, _ in PROBES]
    folder = tmp_path_factory.mktemp("probes")
    found: dict[str | None, list[str]] = {None: probe(None, calls, folder)}
    for profile in SHIPPED:
        found[profile] = probe(compile_profile(profile), calls, folder)
    return found


@pytest.mark.parametrize(
    "index", range(len(PROBES)), ids=[f"{n}({','.join(map(hex, a))})" for n, a, _ in PROBES]
)
def test_probe(answers: dict[str | None, list[str]], index: int) -> None:
    expected = PROBES[index][2]
    control = answers[None][index]
    for profile, wanted in zip(SHIPPED, expected, strict=True):
        assert answers[profile][index] == (control if wanted == "=" else wanted), profile
    if control in expected:
        pytest.skip(f"this machine answers {control} without a filter too")


def test_most_probes_have_a_telling_control(answers: dict[str | None, list[str]]) -> None:
    refused = [i for i, (_, _, expected) in enumerate(PROBES) if expected[2] != "="]
    telling = [i for i in refused if answers[None][i] not in PROBES[i][2]]
    # An unprivileged user is refused many of these by the kernel itself.
    assert len(telling) > len(refused) * 0.5
    families = {PROBES[i][1][0] for i in telling if PROBES[i][0] == "socket"}
    assert families & {NETLINK, VSOCK, PACKET}


# Arguments, and whether the filter answers in the kernel's place. -1 (32 bits, 64): "leave it".
EMULATED: list[tuple[str, tuple[int, ...], bool]] = [
    ("chown", (NOWHERE, 5, 6), True),
    ("chown", (NOWHERE, 0, 6), True),
    ("chown", (NOWHERE, 5, -1), True),
    ("chown", (NOWHERE, 0, 0), False),
    ("chown", (NOWHERE, -1, 0xFFFFFFFF), False),
    ("lchown", (NOWHERE, 5, 6), True),
    ("lchown", (NOWHERE, 0, 0), False),
    ("fchown", (-1, 5, 6), True),
    ("fchown", (-1, 0, 0), False),
    ("fchownat", (-1, NOWHERE, 5, 6, 0), True),
    ("fchownat", (-1, NOWHERE, 0, 0, 0), False),
    ("setgroups", (1, NOWHERE), True),
    ("setuid", (NOBODY,), True),
    ("setgid", (NOBODY,), True),
    ("setreuid", (-1, NOBODY), True),
    ("setregid", (NOBODY, -1), True),
    ("setresuid", (-1, -1, NOBODY), True),
    ("setresgid", (NOBODY, NOBODY, NOBODY), True),
    ("setresuid", (-1, -1, -1), False),
    ("setreuid", (0xFFFFFFFF, 0xFFFFFFFF), False),
]


def test_ownership_is_emulated(tmp_path: Path) -> None:
    """The filter's answer is "done", and nothing is: a pointer to nowhere was not even looked at.
    What names no other id is the kernel's to answer, as under the profile itself."""
    known = [entry for entry in EMULATED if entry[0] in table(NATIVE)]
    calls = [call(name, args) for name, args, _ in known]
    for profile in SHIPPED:
        without = probe(compile_profile(profile), calls, tmp_path)
        found = probe(compile_profile(profile, emulate_ids=True), calls, tmp_path)
        for (name, args, emulated), before, after in zip(known, without, found, strict=True):
            assert after == ("ok" if emulated else before), (profile, name, args)
            if emulated and name.endswith(("chown", "chownat", "groups")):
                assert before != "ok", "the kernel would have said the same"


def test_emulation_lets_nothing_through(tmp_path: Path) -> None:
    """What a profile stops stays stopped: for every system call the verdict is the profile's own or
    the filter's answer."""
    names = ["mount", "ptrace", "unshare", "setns", "bpf", "kexec_load", "mknod", "mknodat"]
    calls = [call(name, (0, 0, 0)) for name in names if name in table(NATIVE)]
    for profile in SHIPPED:
        before = probe(compile_profile(profile), calls, tmp_path)
        assert probe(compile_profile(profile, emulate_ids=True), calls, tmp_path) == before


def test_nested_user_namespaces_can_be_opened(tmp_path: Path) -> None:
    calls = [
        call("unshare", (0,)),
        call("setns", (-1, 0)),
        call("clone", (0x10000000 | 0x200,)),
        call("clone3", (0, 0)),
        call("bpf", (0xFFFF, 0, 0)),
        call("socket", (NETLINK, RAW, 12)),
    ]
    for profile in SHIPPED:
        found = probe(compile_profile(profile, allow_userns=True), calls, tmp_path)
        assert found[:5] == ["ok", "EBADF", "EINVAL", "ENOSYS", "EPERM"]
        assert found[5] in ("EPROTONOSUPPORT", "EAFNOSUPPORT")


def test_chroot_follows_the_capability(tmp_path: Path) -> None:
    # A path that is nowhere: refused by the filter, or by the kernel when it looks.
    calls = [call("chroot", (NOWHERE,))]
    assert probe(compile_profile("moderate"), calls, tmp_path) == ["EPERM"]
    opened = compile_profile("moderate", SECURITY_PROFILES["moderate"].capabilities)
    assert probe(opened, calls, tmp_path) == ["EFAULT"]


def test_numbers_nobody_knows_look_unimplemented(tmp_path: Path) -> None:
    calls: list[tuple[int, tuple[int, ...]]] = [(470, ()), (600, ()), (0x3FFFFFFF, ())]
    if NATIVE == "x86_64":
        calls += [(0x40000000 + 39, ()), (0x40000000 + 41, (UNIX, STREAM, 0)), (400, ())]
    assert probe(compile_profile("moderate"), calls, tmp_path) == ["ENOSYS"] * len(calls)


INT80 = """
#include <unistd.h>
int main(void) {
    long result;
    /* getpid of the 32-bit table; number 20 is writev in the 64-bit one. */
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    return result == getpid() ? 42 : 1;
}
"""


@pytest.mark.skipif(NATIVE != "x86_64", reason="the second ABI is x86's")
@pytest.mark.parametrize("profile", SHIPPED)
def test_the_32_bit_abi_kills(profile: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "int80.c").write_text(INT80)
    subprocess.run([compiler, "-O1", "-o", "int80", "int80.c"], cwd=tmp_path, check=True)
    if run_filtered(None, ["./int80"], tmp_path).returncode != 42:
        pytest.skip("this kernel has no 32-bit emulation")
    assert run_filtered(compile_profile(profile), ["./int80"], tmp_path).returncode == -31


PYTHON = """
import asyncio, ctypes, json, multiprocessing, os, socket, sqlite3, ssl, subprocess, tempfile
import threading
thread = threading.Thread(target=os.getpid); thread.start(); thread.join()
assert subprocess.run(["true"]).returncode == 0
pair = socket.socketpair(); pair[0].send(b"x"); assert pair[1].recv(1) == b"x"
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname()); client.close()
socket.getaddrinfo("localhost", 80)
asyncio.run(asyncio.sleep(0))
assert multiprocessing.get_context("fork").Pool(2).map(abs, [-1]) == [1]
sqlite3.connect("t.db").execute("create table t (x)")
os.mkfifo("fifo"); os.memfd_create("m"); os.nice(1)
print("fine")
"""

GIT = """
set -e
export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null
git init -q repo && cd repo
git config user.email a@b && git config user.name a
echo x > file && git add . && git commit -qm one && git gc -q && git status --short
echo fine
"""

C = """
#include <stdio.h>
int main(void) { puts("fine"); return 0; }
"""


def _compile_c(folder: Path) -> list[str]:
    (folder / "hello.c").write_text(C)
    return ["sh", "-c", "cc -O2 -pipe -o hello hello.c && ./hello"]


PROGRAMS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "sh": ("sh", lambda _: ["sh", "-c", "for i in 1 2 3; do (echo $i) | cat; done; echo fine"]),
    "bash": ("bash", lambda _: ["bash", "-c", "cat <(echo fine) & wait"]),
    "python": ("sh", lambda _: [sys.executable, "-W", "ignore", "-c", PYTHON]),
    "pip": ("sh", lambda _: [sys.executable, "-m", "pip", "--version"]),
    "git": ("git", lambda _: ["sh", "-c", GIT]),
    "cc": ("cc", _compile_c),
    "node": (
        "node",
        lambda _: [
            "node",
            "-e",
            "require('fs').promises.readFile('/etc/passwd').then(() => "
            "require('child_process').execSync('true')).then(() => console.log('fine'))",
        ],
    ),
    "java": ("java", lambda _: ["sh", "-c", "java -Xmx64m -version 2>&1"]),
    "go": ("go", lambda _: ["go", "version"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("profile", SHIPPED)
def test_real_programs_work(profile: str, program: str, tmp_path: Path) -> None:
    needed, command = PROGRAMS[program]
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not here")
    argv = command(tmp_path)
    control = run_filtered(None, argv, tmp_path)
    if control.returncode != 0:
        pytest.skip(f"does not run here without a filter either: {control.stderr[-200:]}")
    for leftover in (*tmp_path.glob("repo"), *tmp_path.glob("t.db"), *tmp_path.glob("fifo")):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    done = run_filtered(compile_profile(profile), argv, tmp_path)
    assert (done.returncode, done.stdout) == (0, control.stdout), done.stderr
