"""Bombs: processes, memory, files, descriptors. Each stops at its limit, and agentd lives.

All of them run in sandboxes with small limits. The control of a bomb is the same bomb in a sandbox
whose limit is larger: it gets further, so the limit is what stopped it.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from agentkernel.backends.base import NOT_ENFORCED
from agentkernel.errors import SandboxUnavailableError, UnenforceableError
from agentkernel.guest.processes import Outcome
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .controls import box_without, with_limits
from .probes import INSIDE, MARK, Box, end, script, start

MIB = 1 << 20

# -- processes ----------------------------------------------------------------------------------

FORK_BOMB = """
count, problem = 0, 'ok'
while count < 220:
    try: pid = os.fork()
    except OSError as e:
        problem = name_of(e.errno)
        break
    if pid == 0:
        signal.pause()
        os._exit(0)
    count += 1
print(json.dumps({'count': count, 'problem': problem}), flush=True)
if V['hold']: signal.pause()
os.kill(0, signal.SIGKILL)
"""


async def test_fork_bomb(box_kernel: Runs, other: Box) -> None:
    async with box_without(box_kernel, spec=SandboxSpec(pids=64)) as box:
        process, said = await start(box, FORK_BOMB, hold=True)
        report = json.loads(said)
        assert report["problem"] == "EAGAIN"
        assert 32 <= report["count"] <= 64
        # While it lasts: agentd answers, says truly that nothing can be started, neighbours work.
        await box.sandbox.channel.call("ping", seconds=5.0)
        refused = await box.run(["true"], timeout_seconds=5.0)
        assert refused.status.outcome in (Outcome.NOT_STARTED, Outcome.EXITED)
        if refused.status.outcome is Outcome.NOT_STARTED:
            assert refused.status.errno == "EAGAIN"
        await other.answers()
        await end(process)
        await box.answers()


async def test_fork_bomb_would_go_on(box_kernel: Runs) -> None:
    """Control."""
    async with box_without(box_kernel, spec=SandboxSpec(pids=200)) as box:
        process, said = await start(box, FORK_BOMB, hold=True)
        report = json.loads(said)
        assert report["count"] > 100
        await end(process)


async def test_threads_count_too(box_kernel: Runs) -> None:
    source = """
import threading
event, count = threading.Event(), 0
threading.stack_size(65536)
try:
    while count < 220:
        threading.Thread(target=event.wait, daemon=True).start()
        count += 1
except RuntimeError: pass
answer(count=count)
event.set()
"""
    async with box_without(box_kernel, spec=SandboxSpec(pids=64)) as box:
        assert (await box.probe(source))["count"] < 64
        await box.answers()


async def test_zombies_are_reaped(box_kernel: Runs) -> None:
    """Orphans end up at a supervisor; 300 of them must not fill a table of 64."""
    source = """
failed = 0
for _ in range(300):
    try: pid = os.fork()
    except BlockingIOError:
        failed += 1
        time.sleep(0.01)
        continue
    if pid == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
def zombies(): return [p for p in pids() if status(p).get('State', '').strip().startswith('Z')]
wait_for(lambda: not zombies())
child = os.fork()
if not child: os._exit(0)
control = bool(wait_for(lambda: child in zombies()))
answer(failed=failed, left=len([z for z in zombies() if z != child]), control=control)
"""
    async with box_without(box_kernel, spec=SandboxSpec(pids=64)) as box:
        inside = await box.probe(source)
        assert inside == {"failed": 0, "left": 0, "control": True}
        await box.answers()


# -- memory -------------------------------------------------------------------------------------

MEMORY_BOMB = """
held, total = [], 0
while total < V['bytes']:
    held.append(b'x' * (4 << 20))
    total += 4 << 20
answer(total=total)
"""


def needs_memory_limit(box: Box) -> None:
    if not box.enforces("memory"):
        line = next(line for line in box.sandbox.effective if line.what == "memory")
        pytest.skip(f"no memory limit in this mode, and `effective` says so: {line.enforced_by}")


async def test_memory_bomb(box_kernel: Runs) -> None:
    async with box_without(box_kernel, change=with_limits(memory_bytes=96 * MIB)) as box:
        needs_memory_limit(box)
        for _ in range(3):
            result = await box.run(
                [box.python, "-I", "-"],
                stdin=script(MEMORY_BOMB, {"bytes": 200 * MIB}),
                env={MARK: INSIDE},
                timeout_seconds=30.0,
            )
            assert result.status.outcome is Outcome.OOM, result.status
            await box.answers()


async def test_memory_bomb_would_go_on(box_kernel: Runs) -> None:
    """Control."""
    async with box_without(box_kernel, change=with_limits(memory_bytes=256 * MIB)) as box:
        assert (await box.probe(MEMORY_BOMB, bytes=150 * MIB))["total"] >= 150 * MIB


async def test_many_small_memory_bombs(box_kernel: Runs) -> None:
    """agentd is small among many: whoever the kernel chooses, it is never PID 1."""
    source = """
for _ in range(24):
    if os.fork() == 0:
        held = b'x' * (8 << 20)
        time.sleep(2)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
answer(done=True)
"""
    async with box_without(box_kernel, change=with_limits(memory_bytes=96 * MIB)) as box:
        needs_memory_limit(box)
        scores = await box.probe(
            "answer(own=text('/proc/self/oom_score_adj').strip(),"
            " agent=text('/proc/1/oom_score_adj').strip(),"
            " lower=attempt(lambda: os.write(os.open('/proc/self/oom_score_adj', 1), b'-1000')),"
            " same=attempt(lambda: os.write(os.open('/proc/self/oom_score_adj', 1), b'0')))"
        )
        assert int(scores["own"]) > int(scores["agent"]) == 0
        assert scores["lower"] == "EACCES", "a process made itself exempt"
        result = await box.run(
            [box.python, "-I", "-"],
            stdin=script(source, {}),
            env={MARK: INSIDE},
            timeout_seconds=20,
        )
        assert result.status.outcome is not Outcome.LOST
        assert box.sandbox.was_out_of_memory() or result.status.outcome is Outcome.OOM
        await box.answers()


# Memory that belongs to no process: killing frees none of it, so in the end agentd would be chosen.
SYSTEM_V = """
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
libc.msgsnd.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PRIVATE, NOWAIT = 0, 0o4000
def segments():
    number = libc.shmget(PRIVATE, 1 << 20, 0o1600)
    if number < 0: return False
    at = libc.shmat(number, None, 0)
    ctypes.memset(at, 1, 1 << 20)
    libc.shmdt(ctypes.c_void_p(at))
    return True
def messages():
    number = libc.msgget(PRIVATE, 0o1600)
    message = struct.pack('l', 1) + bytes(8192)
    while number >= 0 and libc.msgsnd(number, message, 8192, NOWAIT) == 0: pass
    return number >= 0
def semaphores(): return libc.semget(PRIVATE, 16000, 0o1600) >= 0
made, most = 0, {'segments': 200, 'messages': 20000, 'semaphores': 2000}[V['kind']]
while made < most and globals()[V['kind']](): made += 1
answer(made=made)
"""
HOW = {
    "/tmp": ["/tmp"],
    "/dev/shm": ["/dev/shm"],
    "/root": ["/root"],
    "everywhere": ["/tmp", "/dev/shm", "/run", "/root"],
    "segments": ["/tmp"],
    "messages": ["/tmp"],
    "semaphores": ["/tmp"],
    "inodes": ["/tmp"],
}


@pytest.mark.parametrize("how", HOW)
async def test_memory_without_an_owner(box_kernel: Runs, how: str) -> None:
    """Files in memory, System V objects and inodes may not use up what agentd needs to answer.

    The writer is as small as a program can be, so killing it gives next to nothing back.
    """
    try:
        async with box_without(box_kernel, spec=SandboxSpec(memory_bytes=96 * MIB)) as box:
            if how in ("segments", "messages", "semaphores"):
                bomb = script(SYSTEM_V, {"kind": how})
                await box.run([box.python, "-I", "-"], stdin=bomb, env={MARK: INSIDE})
            if how == "inodes":
                loop = "cd /tmp; i=0; while i=$((i+1)); do : > $i || exit; done"
                await box.run(["sh", "-c", loop], timeout_seconds=10.0)
            for place in HOW[how] * 5:
                fill = f"exec head -c 400M /dev/zero >> {place}/big"
                await box.run(["sh", "-c", fill], timeout_seconds=20.0)
                for _ in range(6):
                    await box.run(["true"], timeout_seconds=10.0)
            await box.sandbox.channel.call("ping", seconds=5.0)
    except UnenforceableError as error:
        pytest.skip(f"no memory limit in this mode: {error}")
    except SandboxUnavailableError as error:
        pytest.fail(f"the guest got agentd killed: {error}")


async def test_an_explicit_limit_is_held_or_refused(box_kernel: Runs, box: Box) -> None:
    """No silent fallback: who asks for a limit by name gets it or an error, never neither."""
    for what, spec in (
        ("memory", SandboxSpec(memory_bytes=64 * MIB)),
        ("cpus", SandboxSpec(cpus=0.5)),
    ):
        try:
            sandbox = await box_kernel.create(spec)
        except UnenforceableError as error:
            assert error.hint
            assert not box.enforces("memory"), "the default is enforced, but the explicit is not"
            continue
        held = next(line for line in sandbox.effective if line.what == what)
        assert held.enforced_by == "control group"
        await box_kernel.destroy(sandbox)


# -- files --------------------------------------------------------------------------------------

FILL = """
def fill(path, most):
    total, problem = 0, 'ok'
    block = bytes(1 << 18)
    try:
        with open(path, 'wb', 0) as f:
            while total < most: total += f.write(block)
    except OSError as e: problem = name_of(e.errno)
    os.unlink(path)
    return [total, problem]
answer(results={place: fill(place + '/big', V['most']) for place in V['places']})
"""
ROOM = {
    "tmp_bytes": 8 * MIB,
    "shm_bytes": 4 * MIB,
    "run_bytes": 2 * MIB,
    "disk_bytes": (DISK := 12 * MIB),
    "tmpfs_inodes": 512,
}
PLACES = {"/tmp": 8, "/dev/shm": 4, "/run": 2, "/root": 12, "/usr/local": 12, "/var/tmp": 12}


def why_files_have_no_bound(box: Box) -> str:
    """Nothing if they have one: they are in memory, or in an image. Below Linux 6.6 neither holds
    for a sandbox of one command, and `effective` says so."""
    disk = next(line for line in box.sandbox.effective if line.what == "disk")
    return disk.enforced_by if disk.enforced_by.startswith(NOT_ENFORCED) else ""


async def test_filling_every_place(box_kernel: Runs) -> None:
    async with box_without(box_kernel, change=with_limits(**ROOM)) as box:
        reason = why_files_have_no_bound(box)
        places = [place for place in PLACES if not reason or PLACES[place] * MIB != DISK]
        inside = await box.probe(FILL, places=places, most=64 * MIB)
        for place, (total, problem) in inside["results"].items():
            assert problem == "ENOSPC", place
            assert total <= PLACES[place] * MIB, place
        await box.answers()
    if reason:
        pytest.skip(f"the tmpfs mounts have bounds, the root none: {reason}")


async def test_filling_would_go_on(box_kernel: Runs) -> None:
    """Control."""
    double = {name: 2 * value for name, value in ROOM.items()}
    async with box_without(box_kernel, change=with_limits(**double)) as box:
        inside = await box.probe(FILL, places=list(PLACES), most=64 * MIB)
        for place, (total, _) in inside["results"].items():
            assert total > 1.2 * PLACES[place] * MIB, place


async def test_no_other_place_can_be_filled(box: Box) -> None:
    """Every directory that can be written to is on a file system with a bound.

    Below Linux 6.6 the root has none, unless files are in an image, and `effective` says so.
    """
    source = """
rooms = {}
for line in text('/proc/self/mountinfo').splitlines():
    point = line.split()[4]
    if 'rw' not in line.split()[5].split(',') or not os.path.isdir(point): continue
    probe = point.rstrip('/') + '/.probe'
    if can_open(probe, os.O_CREAT | os.O_WRONLY) != 'ok': continue
    os.unlink(probe)
    room = os.statvfs(point)
    kind = line.partition(' - ')[2].split()[0]
    rooms[point] = [kind, room.f_blocks * room.f_frsize, room.f_files]
answer(rooms=rooms)
"""
    limits = box.sandbox.blueprint.limits
    rooms = (await box.probe(source))["rooms"]
    assert {"/", "/usr", "/tmp", "/run", "/dev/shm"} <= set(rooms)
    disk = next(line for line in box.sandbox.effective if line.what == "disk")
    bounded = disk.value != "unbounded" and not why_files_have_no_bound(box)
    most = (limits.disk_bytes or 0) if bounded else 0
    for point, (kind, size, files) in rooms.items():
        if bounded or kind != "overlay":
            # A tmpfs has whole pages.
            assert 0 < size < max(most, limits.tmp_bytes) + 4096, point
            assert 0 < files <= max(limits.tmpfs_inodes, most // 4096), point
    if not bounded:
        pytest.skip(f"the tmpfs mounts have bounds, the root none: {disk.enforced_by}")


INODES = """
def fill(place):
    os.mkdir(place + '/many')
    count, problem = 0, 'ok'
    try:
        while count < V['most']:
            os.close(os.open('%s/many/%d' % (place, count), os.O_CREAT | os.O_WRONLY))
            count += 1
    except OSError as e: problem = name_of(e.errno)
    for n in range(count): os.unlink('%s/many/%d' % (place, n))
    return [count, problem]
answer(results={place: fill(place) for place in V['places']})
"""


async def test_inodes_run_out(box_kernel: Runs) -> None:
    places = ["/tmp", "/dev/shm", "/run"]
    async with box_without(box_kernel, change=with_limits(**ROOM)) as box:
        inside = await box.probe(INODES, places=places, most=3000)
        for place, (count, problem) in inside["results"].items():
            assert (count <= 512, problem) == (True, "ENOSPC"), place
        reason = why_files_have_no_bound(box)
        if not reason:
            files = (await box.probe(INODES, places=["/root"], most=9000))["results"]["/root"]
            assert files[1] == "ENOSPC"
        await box.answers()
    async with box_without(box_kernel) as box:
        inside = await box.probe(INODES, places=places, most=3000)
        assert {count for count, _ in inside["results"].values()} == {3000}, "control"
    if reason:
        pytest.skip(f"the tmpfs mounts have bounds, the root none: {reason}")


async def test_sparse_files_take_no_room(box_kernel: Runs, other: Box) -> None:
    """A file of a terabyte is harmless where it lies, and can't be made real."""
    source = """
results = {}
for place in V['places']:
    path = place + '/sparse'
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    made = attempt(os.ftruncate, fd, 1 << 40)
    taken = os.fstat(fd).st_blocks
    results[place] = [made, taken, attempt(os.posix_fallocate, fd, 0, 1 << 38)]
    os.close(fd)
    os.unlink(path)
answer(results=results)
"""
    async with box_without(box_kernel, change=with_limits(**ROOM)) as box:
        inside = await box.probe(source, places=list(PLACES))
        for place, (made, taken, real) in inside["results"].items():
            assert made in ("ok", "EFBIG"), place
            assert taken == 0
            assert real in ("ENOSPC", "EFBIG", "EOPNOTSUPP"), place
        await box.answers()


DESCRIPTORS = """
import resource
held, problem = [], 'ok'
try:
    while len(held) < 5000: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e: problem = name_of(e.errno)
for fd in held: os.close(fd)
answer(count=len(held), problem=problem)
"""


async def test_descriptors_run_out(box_kernel: Runs) -> None:
    async with box_without(box_kernel, spec=SandboxSpec(nofile=64)) as box:
        inside = await box.probe(DESCRIPTORS)
        assert (inside["count"] <= 64, inside["problem"]) == (True, "EMFILE")
        await box.answers()
    async with box_without(box_kernel, spec=SandboxSpec(nofile=6000)) as box:
        assert (await box.probe(DESCRIPTORS))["count"] == 5000, "control"


async def test_core_dumps_stay_off(box: Box, unfiltered: Box) -> None:
    """A limit of one byte keeps a core dump handler of the host out; 0 or more would start it."""
    source = """
import resource
def limit(value):
    try: resource.setrlimit(resource.RLIMIT_CORE, (value, value))
    except (OSError, ValueError): pass
    return resource.getrlimit(resource.RLIMIT_CORE)
answer(limits=[limit(0), limit(1 << 20), limit(-1)])
"""
    assert (await box.probe(source))["limits"] == [[1, 1]] * 3
    control = await unfiltered.probe(source)
    assert [0, 0] in control["limits"], "control: without the filter it changes"


async def test_many_commands_at_once(box_kernel: Runs) -> None:
    """More commands than agentd keeps open: some wait or are refused, agentd goes on."""
    async with box_without(box_kernel, spec=SandboxSpec(pids=200)) as box:
        results = await asyncio.gather(
            *(box.run(["true"], timeout_seconds=20.0) for _ in range(120)), return_exceptions=True
        )
        outcomes = {r.status.outcome for r in results if not isinstance(r, BaseException)}
        assert outcomes <= {Outcome.EXITED, Outcome.NOT_STARTED}
        await box.answers()
