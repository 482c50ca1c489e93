"""agentd against the processes it runs, as guest root and with agentd's very own uid.

The strongest attacker inside has agentd's uid. The attacks run against PID 1 and against the
supervisors; the same code against a process of the attacker's own is the control, and so is a
sandbox that lacks the one guard.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

import pytest

from agentkernel.guest.channel import connect_socket
from agentkernel.guest.processes import GuestProcess, ProcessOptions
from agentkernel.kernel.runs import Runs
from agentkernel.security.capabilities import to_mask
from agentkernel.security.profiles import SECURITY_PROFILES

from .attacks import INTRUDE, intrusions
from .controls import box_without
from .probes import INSIDE, MARK, Box, eventually, script


@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
@pytest.mark.parametrize("who", ["root", "agent"])
async def test_agentd_cannot_be_looked_into(boxes: dict[str, Box], profile: str, who: str) -> None:
    box = boxes[profile]
    user = box.agent_user if who == "agent" else None
    inside = await box.probe(INTRUDE, user=user, target=1)
    assert intrusions(inside["results"]) == []
    await box.answers()


@pytest.mark.parametrize("who", ["root", "agent"])
async def test_agentd_guards_itself_without_the_filter(unfiltered: Box, who: str) -> None:
    """The second layer alone: not dumpable, and with a capability that no child has."""
    user = unfiltered.agent_user if who == "agent" else None
    inside = await unfiltered.probe(INTRUDE, user=user, target=1)
    assert intrusions(inside["results"]) == []
    await unfiltered.answers()


async def test_the_intrusions_work_on_others(unfiltered: Box) -> None:
    """Control: against a process of one's own, without the filter, each of them gives something."""
    inside = await unfiltered.probe(INTRUDE, target=0)
    failed = set(inside["results"]) - set(intrusions(inside["results"]))
    # Needs CAP_SYS_ADMIN (map_files, stack), or was asked for something that cannot be.
    assert failed <= {"map_files", "stack", "syscall", "process_madvise"}, inside["results"]


async def test_supervisors_cannot_be_looked_into(box: Box) -> None:
    """A supervisor is a fork of agentd, so its memory once held the token."""
    source = (
        """
V['target'] = os.getppid()
while status(V['target'])['PPid'].strip() != '1': V['target'] = int(status(V['target'])['PPid'])
"""
        + INTRUDE
    )
    for user in (None, box.agent_user):
        inside = await box.probe(source, user=user, target=1)
        assert intrusions(inside["results"]) == []


# -- its resources ------------------------------------------------------------------------------

STARVE = """
import resource
target = V['target']
child = 0
if not target:
    child = target = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
class Limit(ctypes.Structure): _fields_ = [('soft', ctypes.c_uint64), ('hard', ctypes.c_uint64)]
def affinity():
    mask = ctypes.create_string_buffer(128)
    call('sched_getaffinity', target, 128, mask)
    return err('sched_setaffinity', target, 128, mask)
def write(name, data):
    try: fd = os.open('/proc/%d/%s' % (target, name), os.O_WRONLY)
    except OSError as e: return name_of(e.errno)
    try: return attempt(os.write, fd, data)
    finally: os.close(fd)
task = 'task/%d/' % target
param = (ctypes.c_int * 1)(0)
# A limit whose loss harms nobody, RLIMIT_SIGPENDING, stands for all of them.
HIGH = 1 << 32  # the kernel looks at 32 bits of a pid, a careless filter at 64
results = {
    'prlimit read': err('prlimit64', target, resource.RLIMIT_NOFILE, None, Limit()),
    'prlimit': err('prlimit64', target, 11, Limit(100, 100), None),
    'prlimit, high bits': err('prlimit64', HIGH + target, 11, Limit(100, 100), None),
    'affinity': affinity(),
    'affinity, high bits': err('sched_setaffinity', HIGH + target, 128,
                               ctypes.create_string_buffer(b'\\1', 128)),
    'scheduler': err('sched_setscheduler', target, 3, param),
    'nice': err('setpriority', 0, target, 1),
    'nice, high bits': err('setpriority', 0, HIGH + target, 1),
    'ioprio': err('ioprio_set', 1, target, (3 << 13)),
    'oom_score_adj': write('oom_score_adj', b'300'),
    'oom_score_adj of the thread': write(task + 'oom_score_adj', b'300'),
    'oom_adj of the thread': write(task + 'oom_adj', b'6'),
    'clear_refs': write('clear_refs', b'1'),
    'coredump_filter': write('coredump_filter', b'1'),
    'autogroup': write('autogroup', b'1'),
    'timerslack': write('timerslack_ns', b'1000000000'),
    'comm': write('comm', b'x'), 'comm of the thread': write(task + 'comm', b'x'),
    'sched': write('sched', b'0'),
}
if not child:
    results['nice by user'] = err('setpriority', 2, int(status(1)['Uid'].split()[0]), 19)
    results['ioprio by user'] = err('ioprio_set', 3, int(status(1)['Uid'].split()[0]), (3 << 13))
score = text('/proc/%d/oom_score_adj' % target).strip()
if child: os.kill(child, signal.SIGKILL)
answer(results=results, score=score)
"""


def working(inside: dict[str, Any]) -> set[str]:
    return {name for name, result in inside["results"].items() if result == "ok"}


@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
@pytest.mark.parametrize("who", ["root", "agent"])
async def test_agentd_cannot_be_starved(boxes: dict[str, Box], profile: str, who: str) -> None:
    box = boxes[profile]
    inside = await box.probe(STARVE, target=1, user=box.agent_user if who == "agent" else None)
    assert working(inside) == set()
    assert inside["score"] == "0"
    await box.answers()


async def test_starving_works_on_others(unfiltered: Box) -> None:
    """Control: against a process of one's own, without the filter."""
    inside = await unfiltered.probe(STARVE, target=0)
    by_the_thread_only = {"comm", "comm of the thread"}
    failed = set(inside["results"]) - working(inside) - by_the_thread_only
    assert failed <= {"timerslack", "autogroup"}, inside["results"]
    assert int(inside["score"]) > 200


async def test_limits_of_agentd_would_be_writable(unfiltered: Box) -> None:
    """Control: with agentd's uid only the filter stands before its resource limits."""
    inside = await unfiltered.probe(STARVE, target=1, user=unfiltered.agent_user)
    assert {"prlimit read", "prlimit", "prlimit, high bits"} <= working(inside), inside["results"]


async def test_oom_score_would_be_writable(box_kernel: Runs) -> None:
    """Control: without the mount guest root makes agentd the OOM killer's first choice."""
    async with box_without(box_kernel, "agent read-only") as box:
        inside = await box.probe(STARVE, target=1)
        assert {"oom_score_adj", "oom_score_adj of the thread", "clear_refs"} <= working(inside)
        assert int(inside["score"]) > 200


def test_agentd_has_a_capability_that_no_process_has(boxes: dict[str, Box]) -> None:
    """The kernel compares sets before one process may trace or slow down another."""
    for profile, box in boxes.items():
        agent = box.sandbox.channel.agent.capabilities
        theirs = to_mask(SECURITY_PROFILES[profile].capabilities)
        assert agent & ~theirs, f"{profile}: guest root has all that agentd has"


# -- signals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["root", "agent"])
async def test_agentd_outlives_every_signal(box_kernel: Runs, who: str) -> None:
    source = """
sent = {n: attempt(os.kill, 1, n) for n in range(1, 65) if n not in (32, 33)}
sent['all'] = err('kill', 1, signal.SIGSTOP)
try:
    fd = os.pidfd_open(1)
    sent['pidfd'] = attempt(signal.pidfd_send_signal, fd, signal.SIGKILL)
except OSError: pass
victim = os.fork()
if not victim: signal.pause()
os.kill(victim, signal.SIGKILL)
_, state = os.waitpid(victim, 0)
answer(state=status(1)['State'].split()[0], control=os.WTERMSIG(state))
"""
    async with box_without(box_kernel) as box:
        inside = await box.probe(source, user=box.agent_user if who == "agent" else None)
        assert inside["state"] in "SR"
        assert inside["control"] == 9, "control: an ordinary process dies of it"
        await box.answers()


FIND_SUPERVISORS = """
def supervisors():
    own = os.getppid()
    return [p for p in pids() if p != 1 and p != os.getpid() and status(p)['PPid'].strip() == '1']
"""


@pytest.mark.parametrize("number", [19, 15, 9], ids=["STOP", "TERM", "KILL"])
async def test_supervisors_may_be_attacked(box_kernel: Runs, number: int) -> None:
    """Guest root has CAP_KILL. Whatever it does to supervisors, the sandbox goes on answering."""
    source = (
        FIND_SUPERVISORS + "answer(sent=[[p, attempt(os.kill, p, V['n'])] for p in supervisors()])"
    )
    async with box_without(box_kernel) as box:
        started = GuestProcess.start(
            box.sandbox.channel,
            ["sleep", "1000"],
            ProcessOptions(env=dict(box.sandbox.environment)),
        )
        await eventually(lambda: _sees(box, "sleep"), "the bystander runs")
        try:
            sent = await box.run(
                [box.python, "-I", "-"],
                stdin=script(source, {"n": number}),
                env={MARK: INSIDE},
                timeout_seconds=10.0,
            )
            assert sent.status.outcome.value in ("exited", "signaled", "timeout"), sent.status
            await box.answers()
        finally:
            started.kill()
            async with asyncio.timeout(10):
                while await started.output() is not None:
                    pass
            started.release()
        await box.answers()
        await eventually(lambda: _sees_not(box, "sleep"), "the bystander is gone")


async def test_kill_everybody(box_kernel: Runs) -> None:
    """kill(-1) as guest root takes all others along; the next command runs all the same."""
    async with box_without(box_kernel) as box:
        for number in (9, 19):
            await box.run(["sh", "-c", f"sleep 100 & kill -{number} -1; true"], timeout_seconds=5.0)
            await box.answers()


async def _sees(box: Box, name: str) -> bool:
    inside = await box.probe("answer(names=[text('/proc/%d/comm' % p).strip() for p in pids()])")
    return name in inside["names"]


async def _sees_not(box: Box, name: str) -> bool:
    return not await _sees(box, name)


# -- the channel --------------------------------------------------------------------------------


async def test_the_socket_cannot_be_reached(box: Box) -> None:
    source = """
def connect(address):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2)
        s.connect(address)
results = {p: attempt(connect, p) for p in
           ['/proc/1/fd/3', '/proc/self/fd/3', '/proc/self/fd/3/s', '/s', 's', '/proc/1/root/s',
            '/tmp/s', '/run/s', *V['paths']]}
answer(results=results, listed=text('/proc/net/unix').splitlines()[1:])
"""
    directory = str(box.sandbox._directory.path)  # type: ignore[attr-defined]
    for user in (None, box.agent_user):
        inside = await box.probe(source, user=user, paths=[f"{directory}/s"])
        assert "ok" not in inside["results"].values(), inside["results"]
        assert not [line for line in inside["listed"] if line.endswith("/s")]
    connect_socket(directory).close()  # control: outside it is there


# The probe knows the token's first four bytes and the hash of all, never the token itself.
SEEK_TOKEN = """
import hashlib
prefix, digest = bytes.fromhex(V['prefix']), V['digest']
held = bytes.fromhex(V['plain']) if V['plain'] else None
hits, scanned = 0, 0
def scan(data):
    global hits
    at = data.find(prefix)
    while at >= 0:
        if hashlib.sha256(data[at:at + 32]).hexdigest() == digest: hits += 1
        at = data.find(prefix, at + 1)
for pid in pids():
    for name in ('environ', 'cmdline', 'auxv'): scan(read('/proc/%d/%s' % (pid, name)) or b'')
    for line in text('/proc/%d/maps' % pid).splitlines():
        span, rights, *_ = line.split()
        if rights[0] != 'r' or '[v' in line: continue
        start, end = (int(x, 16) for x in span.split('-'))
        try:
            with open('/proc/%d/mem' % pid, 'rb', 0) as f:
                f.seek(start)
                data = f.read(min(end - start, 64 << 20))
        except (OSError, OverflowError): continue
        scanned += len(data)
        scan(data)
for fd in range(3, 64): scan(read('/proc/self/fd/%d' % fd) or b'')
answer(hits=hits, scanned=scanned)
"""


async def test_the_token_is_in_no_memory(box: Box) -> None:
    token = box.sandbox.channel._token
    values = {"prefix": token[:4].hex(), "digest": hashlib.sha256(token).hexdigest()}
    for user in (None, box.agent_user):
        inside = await box.probe(SEEK_TOKEN, user=user, plain="", **values)
        assert inside["hits"] == 0
        assert inside["scanned"] > 1 << 20
    other = os.urandom(32)
    values = {"prefix": other[:4].hex(), "digest": hashlib.sha256(other).hexdigest()}
    control = await box.probe(SEEK_TOKEN, plain=other.hex(), **values)
    assert control["hits"] > 0, "control: a token in readable memory is found"
