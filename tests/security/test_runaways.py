"""Output that floods and trees that hide: what is kept is bounded, and a kill reaches everything.

The control of a tree that was killed is the same tree where nothing kills it: it lives on.
"""

from __future__ import annotations

import asyncio
import os
import tracemalloc

from agentkernel.guest.processes import Outcome, ProcessOptions
from agentkernel.kernel.commands import start_command
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

from .controls import box_without
from .probes import INSIDE, MARK, Box, end, eventually, script, start

MIB = 1 << 20
# By when a command with a time limit must have ended, however busy the machine is.
DEADLINE_S = 30.0

# -- output -------------------------------------------------------------------------------------


async def test_output_flood_is_bounded(box: Box) -> None:
    """A command that only writes: what is kept is capped, and so is what the host holds."""
    tracemalloc.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            result = await box.run(
                ["sh", "-c", "yes flood & yes flood 1>&2"], output_bytes=MIB, timeout_seconds=1.0
            )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.status.outcome is Outcome.TIMEOUT
    assert len(result.stdout) == len(result.stderr) == MIB
    assert result.truncated and result.dropped_bytes > 0
    assert peak < 16 * MIB, f"{peak >> 20} MiB were held"
    more = await box.run(["sh", "-c", "yes | head -c 3000000"], output_bytes=4 * MIB)
    assert len(more.stdout) == 3_000_000 and not more.truncated, "control: a larger cap keeps more"


async def test_a_host_that_does_not_read_stops_the_writer(box: Box) -> None:
    """Neither agentd nor the host collects what nobody asked for."""
    before = (await box.sandbox.channel.call("stats"))["rss_kb"]
    process = start_command(box.sandbox, ["yes"], ProcessOptions())
    source = """
def blocked():
    return [p for p in pids() if text('/proc/%d/comm' % p).strip() == 'yes'
            and status(p)['State'].strip().startswith('S')]
answer(blocked=bool(wait_for(blocked)))
"""
    try:
        assert (await box.probe(source))["blocked"]
        after = (await box.sandbox.channel.call("stats"))["rss_kb"]
        assert after - before < 8 * 1024, f"agentd grew from {before} to {after} kB"
    finally:
        await end(process)


# -- time ---------------------------------------------------------------------------------------

# Five ways to outlive one's parent, each with its own name to be found by.
ESCAPE = """
import subprocess
def named(n):
    libc.prctl(15, ('escape%d' % n).encode(), 0, 0, 0)
    while True: time.sleep(1)
def spawn(n, *steps):
    if os.fork(): return
    for step in steps: step()
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
    for fd in (0, 1, 2): os.close(fd)
    named(n)
def again():
    if os.fork(): os._exit(0)
spawn(1, os.setsid)
spawn(2, os.setsid, again)
spawn(3, again, os.setsid, again)
spawn(4, lambda: libc.prctl(1, 0, 0, 0, 0), lambda: os.setpgid(0, 0))
spawn(5)
spawn(6, os.setsid, again)
def names(): return {text('/proc/%d/comm' % p).strip() for p in pids()}
all_ = wait_for(lambda: {'escape%d' % n for n in range(1, 7)} <= names())
for p in pids():
    if text('/proc/%d/comm' % p).strip() == 'escape6': os.kill(p, signal.SIGSTOP)
print('up' if all_ else 'not up', flush=True)
if V['stay']: time.sleep(60)
"""
WHO = "answer(left=sorted(n for p in pids() if (n := text('/proc/%d/comm' % p).strip()).startswith('escape')))"  # noqa: E501
ALL_ESCAPED = [f"escape{n}" for n in range(1, 7)]


async def test_timeout_ends_the_whole_tree(box_kernel: Runs) -> None:
    async with box_without(box_kernel) as box:
        argv = [box.python, "-I", "-"]
        async with asyncio.timeout(DEADLINE_S):
            result = await box.run(
                argv, stdin=script(ESCAPE, {"stay": True}), env={MARK: INSIDE}, timeout_seconds=1.5
            )
        assert result.stdout == b"up\n", result.stderr
        assert result.status.outcome is Outcome.TIMEOUT
        assert (await box.probe(WHO))["left"] == []


async def test_kill_ends_the_whole_tree(box_kernel: Runs) -> None:
    async with box_without(box_kernel) as box:
        process, said = await start(box, ESCAPE, stay=True)
        assert said == b"up\n"
        assert (await box.probe(WHO))["left"] == ALL_ESCAPED, "control: they are there"
        await end(process)
        assert (await box.probe(WHO))["left"] == []


async def test_the_tree_would_outlive_its_parent(box_kernel: Runs) -> None:
    """Control: where nothing kills them, all six outlive the command that made them."""
    async with box_without(box_kernel) as box:
        result = await box.run(
            [box.python, "-I", "-"], stdin=script(ESCAPE, {"stay": False}), env={MARK: INSIDE}
        )
        assert result.status.exit_code == 0
        assert (await box.probe(WHO))["left"] == ALL_ESCAPED
        host_pid = box.sandbox.pid
    await eventually(lambda: not _exists(host_pid), "the sandbox is gone")


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def test_cpu_hogs_do_not_starve_agentd(box_kernel: Runs) -> None:
    spec = SandboxSpec(pids=64)
    async with box_without(box_kernel, spec=spec) as box:
        source = """
for _ in range(16):
    if os.fork() == 0:
        while True: pass
print(json.dumps({}), flush=True)
while True: pass
"""
        process, _ = await start(box, source)
        for _ in range(5):
            await box.sandbox.channel.call("ping", seconds=5.0)
        await end(process)
        await box.answers()
