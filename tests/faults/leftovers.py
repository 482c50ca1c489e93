"""What of the machine belongs to a state directory, and to which of its sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from agentkernel import faults
from agentkernel.backends.local.idranges import IdRanges
from agentkernel.conformance.footprint import Footprint
from agentkernel.kernel.kernel import Kernel

from .operations import KEPT, ORPHAN, read

SECONDS = 10.0


class World(NamedTuple):
    """A state directory whose sandboxes all run one agentd, which nobody else runs."""

    state_dir: Path
    agentd: Path
    bystander: str

    @contextlib.asynccontextmanager
    async def kernel(self) -> AsyncIterator[Kernel]:
        """The next owner. If a test fails, the rest of the tests do not fail by what it leaves."""
        async with Kernel(self.state_dir) as kernel:
            try:
                yield kernel
            except BaseException:
                faults.disarm()
                for row in (await kernel.list()).records:
                    if row.id != self.bystander:
                        await kernel.remove(row.id)
                raise

    async def check(self, kernel: Kernel, others: set[str]) -> None:
        """The bystander is unharmed, and there is nothing but it and `others`."""
        assert await read(kernel, self.bystander, KEPT) == b"bystander"
        assert [row.state for row in await kernel.jobs.list(self.bystander)] == ["running"]
        page = await kernel.list()
        rows = {row.id: row.state for row in page.records}
        assert rows.keys() == {self.bystander, *others}
        assert set(os.listdir(self.state_dir / "sandboxes")) <= rows.keys()
        assert list((self.state_dir / "runs").glob("*")) == []
        running = {id for id, state in rows.items() if state == "running"}
        assert await self.orphans(running) == []

    async def orphans(self, running: set[str]) -> list[str]:
        """Processes, id ranges and files of none of these, when the kernel has had its time."""
        deadline = time.monotonic() + SECONDS
        while found := self.orphans_now(running):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return found

    def orphans_now(self, running: set[str]) -> list[str]:
        return [*self._processes(running), *self._ranges(running)]

    def _processes(self, running: set[str]) -> list[str]:
        known = {self.first_pid(id) for id in running}
        strangers = [pid for pid in self.pids() if not known.intersection(_line_of(pid))]
        return [f"process {pid}" for pid in strangers]

    def pids(self) -> list[int]:
        """Whatever runs our agentd, in whatever namespace; not what has ended."""
        own = os.stat(self.agentd)
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    exe = os.stat(f"/proc/{name}/exe")
                except OSError:
                    continue
                if (exe.st_dev, exe.st_ino) == (own.st_dev, own.st_ino):
                    found.append(int(name))
        return found

    def first_pid(self, id: str) -> int:
        return int((self.state_dir / "sandboxes" / id / "process").read_text().split()[1])

    def _ranges(self, running: set[str]) -> list[str]:
        if os.getuid():
            return []
        owners = IdRanges().owners().values()
        ours = [Path(owner) for owner in owners if owner.startswith(f"{self.state_dir}/")]
        return [f"id range of {path}" for path in ours if path.name not in running]

    async def remains(self, id: str) -> list[str]:
        """What is left of a sandbox when the kernel has had its time."""
        footprint = Footprint(
            ids=frozenset({id, ORPHAN}),
            state_dir=self.state_dir,
            processes=frozenset(),
            namespaces=frozenset(),
        )
        deadline = time.monotonic() + SECONDS
        while left := footprint.remains():
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return left

    async def remains_stopped(self, id: str) -> list[str]:
        """Of a stopped one only files may be there."""
        found: list[str] = []
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            footprint = Footprint(
                ids=frozenset({id}),
                state_dir=self.state_dir,
                processes=frozenset(),
                namespaces=frozenset(),
            )
            found = [line for line in footprint.remains() if not line.startswith("file ")]
            if not found:
                break
            await asyncio.sleep(0.02)
        names = set(os.listdir(self.state_dir / "sandboxes" / id))
        return [*found, *(f"file {name}" for name in names - {"image", "upper", "layers"})]


def _line_of(pid: int) -> set[int]:
    """A process and those above it."""
    line = set()
    while pid > 1:
        line.add(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(") ")[2].split()[1])
        except OSError:
            break
    return line


async def eventually_in(kernel: Kernel, id: str, state: str, seconds: float = SECONDS) -> None:
    """Returns when the row of a sandbox says `state`."""
    async with asyncio.timeout(seconds):
        while (await kernel.get(id)).state != state:
            kernel._reaper.wake()
            await asyncio.sleep(0.02)
