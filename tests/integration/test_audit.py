"""The kernel's audit log with real sandboxes: what is in it, what never is, and in what order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.audit.entries import Entry, decode_line
from agentkernel.audit.files import log_files
from agentkernel.audit.log import Retention
from agentkernel.audit.verify import verify
from agentkernel.errors import (
    GuestFileNotFoundError,
    NotFoundError,
    ResourceExhaustedError,
    StateLockedError,
)
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

KEPT = SandboxSpec(ephemeral=False)
DEADLINE_S = 30.0
SECRET = "hunter2-" + "q" * 8


def lines(state: Path) -> list[Entry]:
    found = []
    for path in log_files(state / "audit"):
        for line in path.read_bytes().splitlines():
            entry = decode_line(line)
            assert entry
            found.append(entry)
    return found


def results(state: Path) -> list[tuple[str, str | None]]:
    """Actions that are over, with what they came to."""
    return [
        (line.action, line.code or line.result) for line in lines(state) if line.result is not None
    ]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


async def test_a_life(own_state: Path) -> None:
    spec = SandboxSpec(ephemeral=False, env={"TOKEN": SECRET})
    async with Kernel(own_state) as kernel:
        record = await kernel.create(spec, name="work", ttl_seconds=600)
        await kernel.run(
            "work",
            ["sh", "-c", f"echo $TOKEN $OTHER; cat; : --password={SECRET}; exit 3"],
            ProcessOptions(env={"OTHER": SECRET}, stdin=True),
            stdin=SECRET.encode(),
        )
        async with kernel.exec("work", ["echo", "streamed"]) as process:
            while await process.output():
                pass
        job = await kernel.jobs.start("work", ["sleep", "1000"])
        await kernel.jobs.signal(job.id, 18)
        await kernel.jobs.kill(job.id)
        async with kernel.files("work") as files:
            await files.write("/root/a", SECRET.encode())
            await files.append("/root/a", b"!")
            assert await files.read("/root/a") == SECRET.encode() + b"!"
            await files.mkdir("/root/d", mode=0o700)
            await files.move("/root/a", "/root/d/b")
            await files.stat("/root/d/b")
            await files.list("/root/d")
            with pytest.raises(GuestFileNotFoundError):
                await files.read("/root/a")
            await files.remove("/root/d", recursive=True)
        await kernel.extend("work", 900)
        await kernel.stop("work", grace_seconds=0)
        await kernel.start("work")
        await kernel.remove("work")
        with pytest.raises(NotFoundError):
            await kernel.run("work", ["true"])
    assert results(own_state) == [
        ("kernel.start", "ok"), ("sandbox.create", "ok"), ("exec", "ok"), ("exec", "ok"),
        ("job.start", "ok"), ("job.signal", "ok"), ("job.kill", "ok"), ("file.write", "ok"),
        ("file.write", "ok"), ("file.read", "ok"), ("file.mkdir", "ok"), ("file.move", "ok"),
        ("file.read", "file_not_found"), ("file.remove", "ok"), ("sandbox.extend", "ok"),
        ("sandbox.stop", "ok"), ("sandbox.start", "ok"), ("sandbox.remove", "ok"),
        ("exec", "not_found"), ("kernel.stop", "ok"),
    ]  # fmt: skip
    assert verify(own_state / "audit").ok

    found = lines(own_state)
    begun = {line.seq: line for line in found}
    for line in found:
        if line.of is not None:
            begin = begun[line.of]
            assert (begin.action, begin.sandbox, begin.result) == (line.action, record.id, None)
            assert begin.name == line.name == "work"
    ran = [line for line in found if line.action == "exec" and line.of]
    assert ran[0].details["outcome"] == "exited" and ran[0].details["exit_code"] == 3
    assert ran[1].details["output_bytes"] == len("streamed\n")
    appended = [line for line in found if line.action == "file.write" and line.args.get("append")]
    assert appended[0].args["path"] == "/root/a"
    read = next(line for line in found if line.action == "file.read" and line.of)
    assert read.details == {"bytes": len(SECRET) + 1}
    moved = next(line for line in found if line.action == "file.move")
    assert moved.args["to"] == "/root/d/b"
    # The control: the secret went through all of these calls.
    everything = b"".join(path.read_bytes() for path in log_files(own_state / "audit"))
    assert SECRET.encode() not in everything
    assert b"TOKEN" in everything and b"--password=" in everything


async def test_what_the_clock_ends(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        await kernel.create(KEPT, name="short", ttl_seconds=0.2, on_ttl="remove")
        await until(lambda: ("sandbox.remove", "ok") in results(own_state))
    removal = next(line for line in lines(own_state) if line.action == "sandbox.remove")
    assert removal.actor and removal.actor.door == "clock"
    assert removal.args["reason"] == "ttl" and removal.name == "short"


async def test_a_full_disk_stops_what_begins_and_not_what_ends(own_state: Path) -> None:
    async with Kernel(own_state) as kernel:
        await kernel.create(KEPT, name="a")
        # Not by a limit on file sizes, which would stop the store too: the log alone fails.
        log = kernel.trail.log
        real, log._fd = log._fd, os.open("/dev/full", os.O_WRONLY)
        try:
            with pytest.raises(ResourceExhaustedError, match="audit log"):
                await kernel.run("a", ["touch", "/root/ran"])
            await kernel.stop("a", grace_seconds=0)
        finally:
            os.close(log._fd)
            log._fd = real
        await kernel.start("a")
        assert (await kernel.run("a", ["ls", "/root"])).stdout == b""
        await kernel.remove("a")
    report = verify(own_state / "audit")
    assert report.ok and len(report.gaps) == 1


async def test_the_log_belongs_to_the_owner_of_the_state(own_state: Path) -> None:
    async with Kernel(own_state, audit=Retention()):
        before = lines(own_state)
        with pytest.raises(StateLockedError):
            await Kernel(own_state).__aenter__()
        assert lines(own_state) == before


async def test_a_log_that_can_not_be_opened_stops_the_start(own_state: Path) -> None:
    (own_state / "audit").write_text("in the way")
    with pytest.raises(Exception, match="audit log"):
        await Kernel(own_state).__aenter__()
    (own_state / "audit").unlink()
    async with Kernel(own_state):
        pass
    assert results(own_state) == [("kernel.start", "ok"), ("kernel.stop", "ok")]
