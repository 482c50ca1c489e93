"""A busy sandbox and a slow reader: everything arrives, and the daemon holds next to nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from agentkernel.client._async.sandbox import AsyncSandbox
from agentkernel.client._async.transport import AsyncTransport

from .daemon_process import Daemon, eventually

MIB = 1 << 20
_FLOOD = "exec cat /dev/zero"


async def _round_trip(sandbox: AsyncSandbox) -> None:
    """Its own bytes through `cat`, written and read at once."""
    data = os.urandom(MIB)
    got = hashlib.sha256()
    async with sandbox.stream(["cat"], stdin=True) as stream:

        async def feed() -> None:
            await stream.write(data)
            await stream.close_stdin()

        feeder = asyncio.ensure_future(feed())
        async for chunk in stream:
            assert chunk.stream == "stdout", chunk
            got.update(chunk.data)
        await feeder
    assert stream.result.exit_code == 0
    assert got.digest() == hashlib.sha256(data).digest()


async def test_64_round_trips_beside_a_stopped_and_a_flooding_process(daemon: Daemon) -> None:
    transport = AsyncTransport(str(daemon.state_dir), start=False)
    async with await AsyncSandbox.create(transport=transport) as sandbox:
        stopped = await sandbox.jobs.start("kill -STOP $$; echo never")
        flood = sandbox.stream(_FLOOD)
        async with flood:
            first = await flood.read()
            assert first is not None and first.data.startswith(b"\0")
            await asyncio.gather(*(_round_trip(sandbox) for _ in range(64)))
            # Both are as they were: nobody was ended to make room.
            assert (await stopped.refresh()).state == "running"
            assert (await sandbox.exec("pgrep -c -x cat || true")).stdout.strip() == "1"
            await flood.kill()
        await stopped.kill()
    transport.close()


@pytest.mark.timeout(180)
async def test_200_mb_both_ways_past_a_reader_that_stops(daemon: Daemon) -> None:
    """The reader stops for five seconds midway; the daemon's memory does not stand in for it."""
    transport = AsyncTransport(str(daemon.state_dir), start=False)
    total, block = 200 * 1000 * 1000, os.urandom(MIB)
    sent, got, count = hashlib.sha256(), hashlib.sha256(), 0
    async with await AsyncSandbox.create(transport=transport) as sandbox:
        await sandbox.exec("true")
        daemon.forget_peak()
        before = daemon.peak_memory()
        async with sandbox.stream(["cat"], stdin=True) as stream:

            async def feed() -> None:
                left = total
                while left:
                    piece = block[: min(left, len(block))]
                    await stream.write(piece)
                    sent.update(piece)
                    left -= len(piece)
                await stream.close_stdin()

            feeder = asyncio.ensure_future(feed())
            rested = False
            async for chunk in stream:
                got.update(chunk.data)
                count += len(chunk.data)
                if count > total // 2 and not rested:
                    rested = True
                    await asyncio.sleep(5)
            await feeder
        assert rested
        assert (count, stream.result.exit_code) == (total, 0)
        assert got.digest() == sent.digest()
        grown = daemon.peak_memory() - before
        assert grown < 16 * MIB, f"the daemon's peak grew by {grown / MIB:.1f} MiB"
    transport.close()


def test_a_reader_that_is_stopped_for_good_costs_a_window(daemon: Daemon, sandbox: str) -> None:
    """Twenty floods that nobody reads: the daemon stays small and answers."""
    daemon.forget_peak()
    before = daemon.peak_memory()
    floods = [
        daemon.stream(f"/v1/sandboxes/{sandbox}/exec/stream", {"shell": _FLOOD}, max_queue=1)
        for _ in range(20)
    ]
    for flood in floods:
        flood.event("started")
    ticks = _cpu_ticks(daemon.pid)

    def quiet() -> bool:
        """The daemon does nothing any more: every flood stands before a closed door."""
        nonlocal ticks
        earlier, ticks = ticks, _cpu_ticks(daemon.pid)
        time.sleep(0.2)
        return _cpu_ticks(daemon.pid) - ticks <= 1 and ticks - earlier <= 1

    eventually(quiet)
    assert daemon.exec(sandbox, "echo here")["stdout"] == "here\n"
    assert daemon.peak_memory() - before < 64 * MIB
    for flood in floods:
        flood.vanish()
    eventually(lambda: daemon.exec(sandbox, "pgrep -c -x cat || true")["stdout"].strip() == "0")


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
