"""What cases stand on: sandboxes of one engine, and what the machine still has of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Set
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentkernel.backends.base import Backend, Blueprint, Sandbox
from agentkernel.backends.registry import Backends
from agentkernel.conformance.footprint import Footprint, wait_until_gone
from agentkernel.guest.processes import GuestProcess, Outcome, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.commands import ExecResult, run_command, start_command
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.network.policy.model import NetworkSetup

T = TypeVar("T")

# Long enough for the slowest engine on a busy machine: a deadline, not an expectation.
PATIENCE_S = 30.0


class Failed(AssertionError):
    """The engine breaks the contract."""


class NotHere(Exception):
    """The case can't be tried on this machine, or not by this user; says why."""


def expect(condition: object, message: object) -> None:
    if not condition:
        raise Failed(str(message))


async def until(condition: Callable[[], object], message: str) -> None:
    """Waits until it holds."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise Failed(f"not within {PATIENCE_S:g} s: {message}")
        await asyncio.sleep(0.01)


class Bench:
    """One engine in one state directory."""

    def __init__(self, name: str, state_dir: Path) -> None:
        self.name = name
        self.state_dir = state_dir

    def backend(self) -> Backend:
        """A new one each time, as another process would have."""
        return Backends(self.state_dir)[self.name]

    def blueprint(
        self, *, owned: bool = False, network: NetworkSetup | None = None, **spec: Any
    ) -> Blueprint:
        """What a spec means. `network`: what a way out puts inside, which no spec says."""
        spec.setdefault("ephemeral", owned)
        blueprint = expand(SandboxSpec(backend=self.name, **spec), owned=owned)
        return msgspec.structs.replace(blueprint, network=network)

    @contextlib.asynccontextmanager
    async def sandbox(self, *, owned: bool = True, **spec: Any) -> AsyncIterator[Sandbox]:
        """A sandbox that is gone afterwards, which is checked."""
        blueprint = self.blueprint(owned=owned, **spec)
        sandbox = await self.backend().create(blueprint)
        try:
            yield sandbox
        finally:
            footprint = self.footprint(sandbox)
            await sandbox.destroy()
        await self.expect_gone(footprint)

    def footprint(self, sandbox: Sandbox) -> Footprint:
        return Footprint.of(sandbox.id, self.state_dir, [sandbox.pid])

    async def expect_gone(self, what: Footprint | str) -> None:
        """Nothing is left of a footprint, or of what the machine has that names an id."""
        footprint = Footprint.of(what, self.state_dir, ()) if isinstance(what, str) else what
        left = await asyncio.to_thread(wait_until_gone, footprint, PATIENCE_S)
        expect(not left, f"left behind: {left}")

    @contextlib.asynccontextmanager
    async def owner(self, blueprint: Blueprint) -> AsyncIterator[asyncio.subprocess.Process]:
        """Another process that makes this sandbox and keeps it until it is killed. It says `made`
        on its stdout."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "agentkernel.conformance.owner", self.name, str(self.state_dir)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(blueprint) + b"\n")
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def sh(sandbox: Sandbox, script: str, **options: Any) -> ExecResult:
    return await asyncio.wait_for(
        run_command(sandbox, ["sh", "-c", script], ProcessOptions(**options)), PATIENCE_S
    )


async def says(sandbox: Sandbox, script: str, **options: Any) -> str:
    """What a script that must succeed writes."""
    result = await sh(sandbox, script, **options)
    status = result.status
    expect(
        status.outcome is Outcome.EXITED and status.exit_code == 0,
        f"`{script}`: {status}, stderr {result.stderr[-500:]!r}",
    )
    return result.stdout.decode(errors="replace")


def start(sandbox: Sandbox, script: str, **options: Any) -> GuestProcess:
    return start_command(sandbox, ["sh", "-c", script], ProcessOptions(**options))


async def read_until(process: GuestProcess, wanted: bytes) -> bytes:
    """Its output up to where `wanted` has come."""
    output = b""

    async def collect() -> bytes:
        nonlocal output
        while wanted not in output:
            chunk = await process.output()
            if chunk is None:
                raise Failed(f"{wanted!r} never came: {output[-500:]!r}, {process.status}")
            output += chunk.data if chunk.channel is Channel.STDOUT else b""
        return output

    return await within(collect())


async def ended(process: GuestProcess) -> bytes:
    """The rest of its output; its status is there then."""

    async def collect() -> bytes:
        output = b""
        while (chunk := await process.output()) is not None:
            output += chunk.data
        return output

    return await within(collect())


async def within(work: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(work, PATIENCE_S)
    except TimeoutError:
        raise Failed(f"no answer within {PATIENCE_S:g} s") from None


# -- what the machine has ------------------------------------------------------------------------

Identity = tuple[int, str]


def processes_below(pid: int) -> set[Identity]:
    """A process with all its descendants, told apart from others that get their numbers later."""
    parents: dict[int, list[int]] = {}
    starts: dict[int, str] = {}
    for number, parent, started in _all_processes():
        parents.setdefault(parent, []).append(number)
        starts[number] = started
    found, left = set(), [pid]
    while left:
        number = left.pop()
        if number in starts:
            found.add((number, starts[number]))
            left += parents.get(number, [])
    return found


def children(pid: int) -> list[int]:
    return sorted(number for number, parent, _ in _all_processes() if parent == pid)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its descendants that live, as the machine counts it."""
    ticks = 0
    for number, _ in processes_below(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, _stat(number)[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def alive(processes: Set[Identity]) -> list[str]:
    now = {(number, started) for number, _, started in _all_processes()}
    return [f"{number} {_name(number)}" for number, started in sorted(processes & now)]


def _all_processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and start time. Zombies are left out: what is left of them is their parent's
    to collect, not ours."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = _stat(int(name))
            if fields[0] != "Z":
                yield int(name), int(fields[1]), fields[19]


def _stat(number: int) -> list[str]:
    """From field 3 on; the name in field 2 may hold anything."""
    return Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _name(number: int) -> str:
    try:
        return Path(f"/proc/{number}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
