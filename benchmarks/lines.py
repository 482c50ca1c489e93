"""The lines of the benchmark. Each is a function of the contestants; its prose is what it measures.

Values are numbers in the line's unit; of those that were timed the median, with the spread beside.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from machine import available_bytes
from measure import Samples, Work, command, command_beside, rounds
from ours import AT_ONCE, Ours, exec_over_socket
from rivals import Rivals
from web import Requests, bare_server

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.conformance.footprint import Footprint, wait_until_gone

MIB = 1 << 20


@dataclass
class Line:
    """One line's result."""

    name: str
    title: str
    unit: str
    more_is_better: bool = False
    values: dict[str, float] = field(default_factory=dict)
    spread: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, samples: dict[str, Samples]) -> Line:
        for name, found in samples.items():
            self.values[name] = round(found.median * 1000, 3)
            self.spread[name] = found.to_dict()
        return self


Measure = Callable[[Ours, Rivals, int], Awaitable[Line]]


async def create_run_destroy(ours: Ours, rivals: Rivals, count: int) -> Line:
    work: dict[str, Work] = {
        "in process": ours.run_in_process,
        "over the socket": ours.run_over_socket,
        **rivals.run_true(),
    }
    slow = {name: min(count, 20) for name in work if name.split()[0] not in ("in", "over", "bwrap")}
    line = Line("run", "create, run `true`, destroy", "ms")
    return line.add(await rounds(work, count, slow=slow))


async def exec_true(ours: Ours, rivals: Rivals, count: int) -> Line:
    sandbox, remote = await ours.runs.create(ours.spec), await ours.remote()
    try:
        work: dict[str, Work] = {
            "in process": lambda: ours.exec_in_process(sandbox),
            "over the socket": lambda: exec_over_socket(remote),
            "host spawn": lambda: command("/bin/true"),
            **rivals.exec_true(),
        }
        slow = {name: min(count, 20) for name in work if name.endswith(" exec")}
        return Line("exec", "`true` in a running sandbox", "ms").add(
            await rounds(work, count, slow=slow)
        )
    finally:
        await remote.remove()
        await ours.runs.destroy(sandbox)


async def cli(ours: Ours, rivals: Rivals, count: int) -> Line:
    work: dict[str, Work] = {
        "agentkernel run": ours.run_by_cli(),
        "python3 -c pass": lambda: command(ours.cli()[0], "-c", "pass"),
    }
    work |= {k: v for k, v in rivals.run_true().items() if k in ("docker run", "podman run")}
    slow = {name: min(count, 20) for name in work if name.split()[0] in ("docker", "podman")}
    return Line("cli", "`agentkernel run -- true`, daemon warm", "ms").add(
        await rounds(work, count, slow=slow)
    )


async def requests(ours: Ours, rivals: Rivals, count: int) -> Line:
    """The daemon's smallest answer beside the same server's, which says hello."""
    many = 800
    await (await ours.remote()).remove()  # the daemon is there
    with bare_server(ours.state_dir) as hello:
        work: dict[str, Work] = {
            "GET /v1/version": Requests(ours.socket, "/v1/version", many),
            "bare uvicorn": Requests(hello, "/", many),
        }
        return Line("http", f"{many} requests on 16 kept connections", "ms").add(
            await rounds(work, count)
        )


async def idle_memory(ours: Ours, rivals: Rivals, count: int) -> Line:
    """Loss of MemAvailable over many that do nothing, shared among them."""
    line = Line("idle", "memory of an idle sandbox", "kB")
    many = 200 if count > 10 else 40
    before = await _settled_memory()
    sandboxes = await _gather([lambda: ours.runs.create(ours.spec)] * many)
    line.values["in process"] = round((before - await _settled_memory()) / many / 1024, 1)
    await _gather([partial(ours.runs.destroy, one) for one in sandboxes])
    if rivals.bwrap:
        before = await _settled_memory()
        words = [*rivals.bwrap_words(), "sleep", "1000"]
        children = _start_all(words, many)
        await _until(lambda: all(_has_grandchild(child.pid) for child in children))
        line.values["bwrap"] = round((before - await _settled_memory()) / many / 1024, 1)
        for child in children:
            child.kill()
            child.wait()
    line.notes.append(f"over {many}")
    return line


async def alive(ours: Ours, rivals: Rivals, count: int) -> Line:
    """Many at once over the daemon, each answering an exec; nothing left of any afterwards."""
    many = 500 if count > 10 else 60
    line = Line("alive", f"{many} sandboxes alive at once", "ms each")
    started = time.perf_counter()
    sandboxes: list[AsyncSandbox] = await _gather([ours.remote] * many)
    line.values["create"] = _each(started, many)
    first_pids = [_first_pid(ours, sandbox.id) for sandbox in sandboxes]
    footprint = Footprint.of_many([s.id for s in sandboxes], ours.state_dir, first_pids)
    started = time.perf_counter()
    await _gather([partial(exec_over_socket, one) for one in sandboxes])
    line.values["exec"] = _each(started, many)
    started = time.perf_counter()
    await _gather([one.remove for one in sandboxes])
    line.values["remove"] = _each(started, many)
    left = await asyncio.to_thread(wait_until_gone, footprint, 30.0)
    line.notes.append(f"all {many} answered; {len(left) or 'nothing'} left after removal")
    line.values["left"] = len(left)
    return line


async def stream(ours: Ours, rivals: Rivals, count: int) -> Line:
    """What a command writes, read to the end: 1 GiB."""
    size = (1024 if count > 10 else 128) * MIB
    words = ["head", "-c", str(size), "/dev/zero"]
    line = Line("stream", "output of a command", "MiB/s", more_is_better=True)
    async with await ours.remote() as sandbox:
        started, got = time.perf_counter(), 0
        async with sandbox.stream(words) as output:
            async for chunk in output:
                got += len(chunk.data)
        assert got == size
        line.values["over the socket"] = _rate(started, size)
    sandbox_in_process = await ours.runs.create(ours.spec)
    started = time.perf_counter()
    await ours.runs.run(sandbox_in_process, words, output_bytes=0)
    line.values["in process"] = _rate(started, size)
    await ours.runs.destroy(sandbox_in_process)
    for name, prefix in rivals.cat_words().items():
        inside = ["dd", "if=/dev/zero", "bs=1M", f"count={size // MIB}"]
        started = time.perf_counter()
        await asyncio.to_thread(_drain, [*prefix, *inside], size)
        line.values[name] = _rate(started, size)
    return line


async def files(ours: Ours, rivals: Rivals, count: int) -> Line:
    """A file in, and out again, over the socket."""
    data = os.urandom(8 * MIB)
    many = 8 if count > 10 else 2
    line = Line("files", "files of 8 MiB", "MiB/s", more_is_better=True)
    async with await ours.remote() as sandbox:
        started = time.perf_counter()
        for number in range(many):
            await sandbox.files.write(f"/tmp/{number}", data)
        line.values["write"] = _rate(started, len(data) * many)
        started = time.perf_counter()
        for number in range(many):
            assert len(await sandbox.files.read_bytes(f"/tmp/{number}")) == len(data)
        line.values["read"] = _rate(started, len(data) * many)
    return line


async def parallel(ours: Ours, rivals: Rivals, count: int) -> Line:
    """create, run `true`, destroy, some at once, as many a second as the machine gives."""
    many = max(40, count)
    line = Line("parallel", f"the same, {AT_ONCE} at once", "a second", more_is_better=True)
    contestants: dict[str, Work] = {
        "in process": ours.run_in_process,
        "over the socket": ours.run_over_socket,
        **(
            {"bwrap": partial(command_beside, *rivals.bwrap_words(), "true")}
            if rivals.bwrap
            else {}
        ),
    }
    for name, work in contestants.items():
        started = time.perf_counter()
        await _gather([work] * many)
        line.values[name] = round(many / (time.perf_counter() - started), 1)
    return line


LINES: dict[str, Measure] = {
    "run": create_run_destroy,
    "exec": exec_true,
    "cli": cli,
    "http": requests,
    "idle": idle_memory,
    "alive": alive,
    "stream": stream,
    "files": files,
    "parallel": parallel,
}


async def _gather(work: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """All of it, AT_ONCE at a time, in order."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(what: Callable[[], Awaitable[Any]]) -> Any:
        async with gate:
            return await what()

    return await asyncio.gather(*(one(what) for what in work))


async def _settled_memory() -> int:
    """MemAvailable when it has stopped moving: the kernel gives things back late."""
    last = available_bytes()
    for _ in range(40):
        await asyncio.sleep(0.25)
        now = available_bytes()
        if abs(now - last) < 512 * 1024:
            return now
        last = now
    return last


async def _until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError("a rival did not start")
        await asyncio.sleep(0.05)


def _has_grandchild(pid: int) -> bool:
    try:
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return bool(child and Path(f"/proc/{child[0]}/task/{child[0]}/children").read_text())
    except OSError:
        return False


def _start_all(words: list[str], many: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(words, stdin=subprocess.DEVNULL) for _ in range(many)]


def _first_pid(ours: Ours, id: str) -> int:
    found = next(ours.state_dir.glob(f"**/{id}/process"))
    return int(found.read_text().split()[1])


def _drain(words: list[str], size: int) -> None:
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        got = 0
        while data := child.stdout.read(1 << 20):
            got += len(data)
    assert got == size, f"{got} of {size} bytes"


def _each(started: float, many: int) -> float:
    return round((time.perf_counter() - started) * 1000 / many, 2)


def _rate(started: float, size: int) -> float:
    return round(size / MIB / (time.perf_counter() - started), 1)
