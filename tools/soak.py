#!/usr/bin/env python3
"""Makes, runs and removes sandboxes for a count or a time; compares the machine before and after.

    tools/soak.py --cycles 1000 [--backend native] [--alive 500] [--report FILE]

Every kernel and disk resource that a sandbox could leave is counted: processes, mounts, namespaces,
control groups, sockets, loop devices, id ranges, descriptors, files, the kernel's caches of them.
Run it on a machine that does nothing else: only processes are told from those of others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from machine import facts  # noqa: E402

from agentkernel.client._async.sandbox import AsyncSandbox  # noqa: E402
from agentkernel.client._async.transport import AsyncTransport  # noqa: E402
from agentkernel.client.daemon import Daemon  # noqa: E402

AT_ONCE = 4
# Objects of the kernel that every sandbox has some of; /proc/slabinfo is for root.
SLABS = ("mnt_cache", "net_namespace", "pid_namespace", "user_namespace", "sock_inode_cache")
Counts = dict[str, int]
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    options = _options()
    about = facts()
    with tempfile.TemporaryDirectory(prefix="ak-soak-") as place:
        state = Path(place)
        os.environ["AGENTKERNEL_STATE_DIR"] = place
        before, after, done, seconds = asyncio.run(_soak(options, state))
    rows = [(name, before[name], after[name]) for name in before]
    worse = [name for name, was, now in rows if now > was + _SLACK.get(name, 0)]
    text = _table(options, about, rows, done, seconds, worse)
    print(text)
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text)
    return 1 if worse else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/soak.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--backend", default="native")
    parser.add_argument("--cycles", type=int, default=1000, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S", help="for so long instead")
    parser.add_argument("--alive", type=int, default=0, metavar="N", help="then so many at once")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table there")
    return parser.parse_args()


async def _soak(options: argparse.Namespace, state: Path) -> tuple[Counts, Counts, int, float]:
    _adopt_orphans()
    transport = AsyncTransport(str(state))
    # What is made once is made before: the image, the daemon's threads and pools.
    for _ in range(3 * AT_ONCE):
        await _cycle(options.backend, transport, 0)
    transport.close()  # idle connections are no leak
    before = await _settled(state)
    started, done = time.monotonic(), 0
    while (
        done < options.cycles
        if options.seconds is None
        else (time.monotonic() - started < options.seconds)
    ):
        batch = min(AT_ONCE, options.cycles - done) if options.seconds is None else AT_ONCE
        await asyncio.gather(*(_cycle(options.backend, transport, done + i) for i in range(batch)))
        done += batch
        if done % 100 < AT_ONCE:
            print(f"… {done}", file=sys.stderr)
    if options.alive:
        await _alive(options.backend, transport, options.alive)
    seconds = time.monotonic() - started
    transport.close()
    after = await _settled(state, before)
    version = await transport.call("GET", "/v1/version")
    await transport.call("POST", "/v1/shutdown")
    transport.close()
    await asyncio.to_thread(Daemon(str(state)).wait_gone, version["pid"])
    return before, after, done, seconds


async def _cycle(backend: str, transport: AsyncTransport, number: int) -> None:
    """One life: a command, a file, a job left running; every third is stopped and started too."""
    kept = number % 3 == 0
    sandbox = await AsyncSandbox.create(backend=backend, kept=kept, transport=transport)
    try:
        result = await sandbox.exec("echo $((6*7)); mkdir -m 000 /root/closed")
        assert result.stdout == "42\n", result
        await sandbox.files.write("/tmp/file", b"x" * 10_000)
        await sandbox.jobs.start("sleep 1000")
        if kept:
            await sandbox.stop(grace_seconds=0)
            await sandbox.start()
            assert (await sandbox.exec(["true"])).exit_code == 0
    finally:
        await sandbox.remove()


async def _alive(backend: str, transport: AsyncTransport, many: int) -> None:
    make = partial(AsyncSandbox.create, backend=backend, transport=transport)
    sandboxes = await _some_at_once([make] * many)
    results = await _some_at_once([partial(one.exec, ["true"]) for one in sandboxes])
    assert [result.exit_code for result in results] == [0] * many
    print(f"… {many} alive, each answered", file=sys.stderr)
    await _some_at_once([one.remove for one in sandboxes])


async def _some_at_once(work: list[Callable[[], Awaitable[object]]]) -> list:  # type: ignore[type-arg]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(what: Callable[[], Awaitable[object]]) -> object:
        async with gate:
            return await what()

    return await asyncio.gather(*(one(what) for what in work))


# --- counting --------------------------------------------------------------------------------

# Counts that move by themselves on an idle machine, by at most so much.
_SLACK = {
    **{f"slab {name}": 400 for name in SLABS},
    "memory of the daemon, kB": 24_000,
    "rows and events on disk, kB": 8_000,
    # A pool that grows as far as it may when much is asked at once.
    "threads of the daemon": 6,
}


async def _settled(state: Path, wanted: Counts | None = None) -> Counts:
    """The counts when they stand still, or are what they were: the kernel drops things late."""
    last = _counts(state)
    for _ in range(60):
        await asyncio.sleep(0.5)
        now = _counts(state)
        if wanted and all(now[k] <= wanted[k] for k in now if k not in _SLACK):
            return now
        if not wanted and now == last:
            return now
        last = now
    return last


def _counts(state: Path) -> Counts:
    daemon = int(re.search(r'"pid":\s*(\d+)', (state / "daemon.json").read_text())[1])  # type: ignore[index]
    pids = _descendants()
    spaces: set[str] = set()
    mounts = 0
    for pid in pids:
        for name in _names(f"/proc/{pid}/ns"):
            try:
                spaces.add(os.readlink(f"/proc/{pid}/ns/{name}"))
            except OSError:
                continue
        mounts += len(_lines(f"/proc/{pid}/mountinfo"))
    return {
        "processes below this one": len(pids),
        "their namespaces": len(spaces),
        "their mounts": mounts,
        "mounts of this process": len(_lines("/proc/self/mountinfo")),
        "control groups": sum(len(names) for _, names, _ in os.walk("/sys/fs/cgroup")),
        "unix sockets": len(_lines("/proc/net/unix")),
        "loop devices in use": len(list(Path("/sys/block").glob("loop*/loop/backing_file"))),
        "id ranges": len(_names("/var/lib/agentkernel/id-ranges")),
        "descriptors of the daemon": len(_names(f"/proc/{daemon}/fd")),
        "threads of the daemon": len(_names(f"/proc/{daemon}/task")),
        "memory of the daemon, kB": _status(daemon, "VmRSS"),
        "sandbox directories": sum(
            len(_names(str(path))) for path in state.glob("*") if path.name in ("sandboxes", "runs")
        ),
        "files in the state directory": sum(len(files) for _, _, files in os.walk(state)),
        "rows and events on disk, kB": sum(p.stat().st_size for p in state.glob("state.db*")) >> 10,
        **_slabs(),
    }


def _descendants() -> list[int]:
    """This process and all below it. As it adopts what loses its parent (`_adopt_orphans`), nothing
    that the daemon or a sandbox leaves is anywhere else, and nobody else's processes count."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _lines(f"/proc/{name}/stat")):
            state, parent = stat[0].rpartition(") ")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(int(name), os.WNOHANG)
                continue
            children.setdefault(int(parent), []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return found


def _adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process can't adopt orphans")


def _slabs() -> Counts:
    found = {}
    for line in _lines("/proc/slabinfo"):
        words = line.split()
        if words[0] in SLABS:
            found[f"slab {words[0]}"] = int(words[1])
    return found


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.readlines()
    except OSError:
        return []


def _status(pid: int, name: str) -> int:
    for line in _lines(f"/proc/{pid}/status"):
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _table(
    options: argparse.Namespace,
    about: dict[str, object],
    rows: list[tuple[str, int, int]],
    done: int,
    seconds: float,
    worse: list[str],
) -> str:
    lines = [
        f"# Soak of `{options.backend}`",
        "",
        f"{done} lives in {seconds:.0f} s"
        + (f", then {options.alive} alive at once, each answering an exec" if options.alive else "")
        + f"; {about['date']}, commit {str(about['commit'])[:12]}, kernel {about['kernel']}, "
        f"{about['cores']} cores, {about['user']}.",
        "",
        "| what | before | after |",
        "|---|---:|---:|",
        *(f"| {name} | {was} | {now} |" for name, was, now in rows),
        "",
        f"Grown: {', '.join(worse)}."
        if worse
        else "Nothing has grown beyond what moves by itself.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
