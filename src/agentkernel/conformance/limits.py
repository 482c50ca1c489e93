"""Limits: enforced, or refused before anything runs."""

from __future__ import annotations

import asyncio
from typing import Any

from agentkernel.backends.base import Sandbox
from agentkernel.conformance.bench import (
    Bench,
    Failed,
    NotHere,
    cpu_seconds,
    expect,
    read_until,
    says,
    sh,
    start,
    until,
    within,
)
from agentkernel.errors import SandboxUnavailableError, UnenforceableError
from agentkernel.guest.processes import Outcome

MIB = 1 << 20

_TAKE = "python3 -c 'b = bytearray({0} << 20); print(len(b) >> 20)'"
_FORK = (
    "import os, time\n"
    "n = 0\n"
    "try:\n"
    "    while n < 200:\n"
    "        if os.fork() == 0:\n"
    "            time.sleep(60)\n"
    "            os._exit(0)\n"
    "        n += 1\n"
    "except OSError:\n"
    "    pass\n"
    "print(n, flush=True)\n"
)


async def memory_is_bounded(bench: Bench) -> None:
    """more memory than allowed ends the command or the sandbox, never the machine"""
    async with _limited(bench, "memory", memory_bytes=256 * MIB) as sandbox:
        expect((await says(sandbox, _TAKE.format(32))).strip() == "32", "control: a little is fine")
        try:
            result = await sh(sandbox, _TAKE.format(600))
        except SandboxUnavailableError:
            return
        expect(result.stdout != b"600\n", "it got what it asked for")
        expect(
            result.status.outcome is not Outcome.EXITED or result.status.exit_code, result.status
        )


async def processes_are_bounded(bench: Bench) -> None:
    """fork fails at the limit, and the sandbox still answers"""
    async with _limited(bench, "pids", pids=64) as sandbox:
        result = await sh(sandbox, f"exec python3 -c '{_FORK}'", timeout_seconds=20)
        expect(0 < int(result.stdout or b"0") < 64, f"{result.stdout!r} processes, {result.status}")
        await within(sandbox.channel.call("ping"))


async def processor_time_is_bounded(bench: Bench) -> None:
    """two busy loops get together what was allowed, as the machine counts it, and not more"""
    async with _limited(bench, "cpus", cpus=0.5) as sandbox:
        spin = start(sandbox, "echo on; while :; do :; done & while :; do :; done")
        await read_until(spin, b"on\n")
        clock = asyncio.get_running_loop().time
        before, began = cpu_seconds(sandbox.pid), clock()
        await until(lambda: clock() > began + 2, "two seconds pass")
        share = (cpu_seconds(sandbox.pid) - before) / (clock() - began)
        expect(0.01 < share < 0.75, f"{share:.2f} processors")


async def disk_is_bounded(bench: Bench) -> None:
    """writing beyond the limit is ENOSPC, and what is there stays readable"""
    async with _limited(bench, "disk", disk_bytes=32 * MIB) as sandbox:
        await says(sandbox, "dd if=/dev/zero of=/root/little bs=1M count=8 2>/dev/null")
        result = await sh(sandbox, "dd if=/dev/zero of=/root/much bs=1M count=64")
        expect(result.status.exit_code == 1 and b"space" in result.stderr, result)
        await says(sandbox, "rm /root/much; cat /root/little > /dev/null")


async def temporary_files_are_bounded(bench: Bench) -> None:
    """/tmp, /dev/shm and /run end where the profile says"""
    async with bench.sandbox(profile="restrictive") as sandbox:
        for path in ("/tmp", "/dev/shm", "/run"):
            script = (
                f"dd if=/dev/zero of={path}/much bs=1M count=200; s=$?; rm -f {path}/much; exit $s"
            )
            result = await sh(sandbox, script, user="root")
            expect(result.status.exit_code == 1, f"{path}: {result}")


async def open_files_are_bounded(bench: Bench) -> None:
    """RLIMIT_NOFILE is what was asked for"""
    async with _limited(bench, "nofile", nofile=64) as sandbox:
        expect((await says(sandbox, "ulimit -n; ulimit -Hn")).split() == ["64", "64"], "ulimit")


async def usage_is_the_guest_s(bench: Bench) -> None:
    """processes that usage tells of are the guest's and a few of agentd's, none of the engine's"""
    async with bench.sandbox() as sandbox:
        process = start(sandbox, "for n in 1 2 3 4 5; do sleep 1000 & done; echo up; wait")
        await read_until(process, b"up")
        usage = await within(sandbox.usage())
        count = usage.processes if usage else None
        expect(count is not None and 6 <= count <= 12, f"6 processes were started: {usage}")


def _limited(bench: Bench, name: str, **limit: Any) -> _Limited:
    return _Limited(bench, name, limit)


class _Limited:
    """A sandbox with an explicit limit. One that can't be enforced has to be refused; that it is
    refused where the engine claims it means that the machine, or this user, lacks what it takes."""

    def __init__(self, bench: Bench, name: str, limit: dict[str, Any]) -> None:
        self._bench, self._name, self._limit = bench, name, limit

    async def __aenter__(self) -> Sandbox:
        claimed = self._name in self._bench.backend().features.limits
        self._made = self._bench.sandbox(**self._limit)
        try:
            sandbox = await self._made.__aenter__()
        except UnenforceableError as exc:
            expect(exc.hint, "a refusal says what can be done")
            raise NotHere(f"refused: {exc.message}") from None
        if not claimed:
            await sandbox.destroy()
            raise Failed(f"the engine does not claim to limit {self._name}, but took the limit")
        return sandbox

    async def __aexit__(self, *error: Any) -> None:
        await self._made.__aexit__(*error)


CASES = (
    memory_is_bounded,
    processes_are_bounded,
    processor_time_is_bounded,
    disk_is_bounded,
    temporary_files_are_bounded,
    open_files_are_bounded,
    usage_is_the_guest_s,
)
