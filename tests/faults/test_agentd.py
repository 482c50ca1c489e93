"""agentd is killed, or stopped as by kill -STOP, while it is needed; so is the launcher."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from agentkernel import faults
from agentkernel.backends.local import launcher
from agentkernel.errors import (
    ConflictError,
    GuestTimeoutError,
    LaunchError,
    SandboxUnavailableError,
)
from agentkernel.guest import file_calls
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.processes import Outcome
from agentkernel.ids import new_id
from agentkernel.kernel import commands, jobs, watch
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

from .leftovers import World, eventually_in
from .operations import CONTENT, KEPT, OPERATIONS, WRITTEN, exists, read, running

PATIENCE = 0.5


def send(pid: int, number: int) -> Callable[[], None]:
    return lambda: os.kill(pid, number)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits for agentd are short."""
    monkeypatch.setattr(watch, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(watch, "ANSWER_S", PATIENCE)
    monkeypatch.setattr(commands, "START_SECONDS", PATIENCE)
    monkeypatch.setattr(jobs, "LIST_SECONDS", PATIENCE)
    monkeypatch.setattr(file_calls, "ANSWER_SECONDS", PATIENCE)


@pytest.mark.parametrize("point", ["exec.before", "exec.started"])
async def test_a_command_is_lost_with_its_sandbox(point: str, world: World) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        faults.arm(point, send(world.first_pid(id), signal.SIGKILL))
        result = await kernel.run(id, ["sleep", "1000"])
        assert result.status.outcome is Outcome.LOST
        await _is_seen_and_mended(world, kernel, id)


@pytest.mark.parametrize("point", ["job.row", "job.started"])
async def test_a_job_is_lost_with_its_sandbox(point: str, world: World) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        faults.arm(point, send(world.first_pid(id), signal.SIGKILL))
        try:
            await kernel.jobs.start(id, ["sleep", "1000"])
        except SandboxUnavailableError:
            assert point == "job.row"
        await eventually_in(kernel, id, "error")
        assert [row.state for row in await kernel.jobs.list(id)] == ["lost"]
        await _is_seen_and_mended(world, kernel, id, remove=False)
        assert [row.state for row in await kernel.jobs.list(id)] == ["lost"]
        await kernel.remove(id)


@pytest.mark.parametrize("point", ["file.before", "file.midway", "file.sent"])
async def test_a_file_is_whole_or_not_there(point: str, world: World) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        faults.arm(point, send(world.first_pid(id), signal.SIGKILL))
        acknowledged = False
        async with kernel.files(id) as files:
            try:
                await files.write(WRITTEN, CONTENT)
                acknowledged = True
            except SandboxUnavailableError:
                pass
        assert not acknowledged or point == "file.sent", "the answer was faster than the signal"
        await _is_seen_and_mended(world, kernel, id, remove=False)
        written = await exists(kernel, id, WRITTEN)
        assert written or not acknowledged
        assert not written or await read(kernel, id, WRITTEN) == CONTENT
        await kernel.remove(id)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("operation", ["stop", "remove"])
async def test_what_ends_it_needs_no_agentd(
    operation: str, number: int, world: World, impatient: None
) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        faults.arm("stop.begin" if operation == "stop" else "remove.row",
                   send(world.first_pid(id), number))  # fmt: skip
        await OPERATIONS[operation].do(kernel, id)
        if operation == "stop":
            assert (await kernel.get(id)).state == "stopped"
            assert await world.remains_stopped(id) == []
            await kernel.remove(id)
        assert await world.remains(id) == []


async def _is_seen_and_mended(
    world: World, kernel: Kernel, id: str, *, remove: bool = True
) -> None:
    """Its row says so, calls do, nothing but files is left, and it can be started again."""
    await eventually_in(kernel, id, "error")
    record = await kernel.get(id)
    assert record.error == watch.ENDED
    with pytest.raises(SandboxUnavailableError):
        await kernel.run(id, ["true"])
    assert await world.remains_stopped(id) == []
    await kernel.start(id)
    record = await kernel.get(id)
    assert (record.state, record.error) == ("running", None)
    assert await read(kernel, id, KEPT) == b"acknowledged"
    if remove:
        await kernel.remove(id)
        assert await world.remains(id) == []


async def test_one_in_memory_that_ended_is_seen_and_removed(world: World) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await kernel.create(SandboxSpec(), id=id)
        os.kill(world.first_pid(id), signal.SIGKILL)
        await eventually_in(kernel, id, "error")
        with pytest.raises(ConflictError, match="in memory"):
            await kernel.start(id)
        await kernel.remove(id)
        assert await world.remains(id) == []


async def test_a_next_owner_finds_that_it_ended(world: World) -> None:
    """Between two owners, and after the one before had said so."""
    id, memory = new_id(), new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        await kernel.create(SandboxSpec(), id=memory)
        await kernel.jobs.start(id, ["sleep", "1000"])
        os.kill(world.first_pid(memory), signal.SIGKILL)
        await eventually_in(kernel, memory, "error")
        pid = world.first_pid(id)
    os.kill(pid, signal.SIGKILL)
    async with world.kernel() as kernel:
        assert (await kernel.get(id)).state == "stopped"
        assert [row.state for row in await kernel.jobs.list(id)] == ["lost"]
        await world.check(kernel, {id})
        await kernel.remove(id)


# -- a silent one ---------------------------------------------------------------------------------


async def _run(kernel: Kernel, id: str) -> object:
    return await kernel.run(id, ["true"])


async def _start_job(kernel: Kernel, id: str) -> object:
    return await kernel.jobs.start(id, ["sleep", "1000"])


async def _write(kernel: Kernel, id: str) -> object:
    async with kernel.files(id) as files:
        return await files.write(WRITTEN, CONTENT)


@pytest.mark.parametrize("call", [_run, _start_job, _write])
async def test_a_call_to_a_stopped_agentd_has_a_bound(
    call: Callable[[Kernel, str], object], world: World, impatient: None
) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        pid = world.first_pid(id)
        point = {_run: "exec.before", _start_job: "job.row", _write: "file.before"}[call]  # type: ignore[index]
        faults.arm(point, send(pid, signal.SIGSTOP))
        with pytest.raises(GuestTimeoutError):
            await call(kernel, id)  # type: ignore[misc]
        await eventually_in(kernel, id, "error")
        with pytest.raises(GuestTimeoutError, match="has not answered for"):
            await call(kernel, id)  # type: ignore[misc]
        record = await kernel.get(id)
        assert record.error and "has not answered" in record.error
        assert record.id in {row.id for row in (await kernel.list(states=["error"])).records}
        os.kill(pid, signal.SIGCONT)
        await eventually_in(kernel, id, "running")
        assert (await kernel.get(id)).error is None
        assert await read(kernel, id, KEPT) == b"acknowledged"
        if call is _start_job:
            # Nobody was told of it, and it is as its row says.
            assert [row.state for row in await kernel.jobs.list(id)] == ["running"]
        await kernel.remove(id)
        assert await world.remains(id) == []


@pytest.mark.parametrize("ending", ["stop", "remove"])
async def test_a_silent_one_can_be_ended(ending: str, world: World, impatient: None) -> None:
    """Commands that were under way end with it; others are not held up meanwhile."""
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        runs = asyncio.Event()
        faults.arm("exec.started", runs.set)
        command = asyncio.ensure_future(kernel.run(id, ["sleep", "1000"]))
        await runs.wait()
        job = await kernel.jobs.start(id, ["sleep", "1000"])
        os.kill(world.first_pid(id), signal.SIGSTOP)
        await eventually_in(kernel, id, "error")
        assert (await kernel.jobs.get(job.id)).state == "running", "it may come back"
        assert await read(kernel, world.bystander, KEPT) == b"bystander"
        with pytest.raises(GuestTimeoutError):
            await kernel.start(id)
        await OPERATIONS[ending].do(kernel, id)
        result: ExecResult = await command
        assert result.status.outcome is Outcome.LOST
        if ending == "stop":
            assert await world.remains_stopped(id) == []
            assert (await kernel.jobs.get(job.id)).state == "lost"
            await kernel.start(id)
            assert await read(kernel, id, KEPT) == b"acknowledged"
            await kernel.remove(id)
        assert await world.remains(id) == []


async def test_a_next_owner_leaves_a_silent_one_to_its_user(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ended by a restart, says so, and answers the owner after that; or it is stopped."""
    defaults = GuestChannel.connect.__func__.__kwdefaults__  # type: ignore[attr-defined]
    monkeypatch.setitem(defaults, "seconds", PATIENCE)
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        pid = world.first_pid(id)
    os.kill(pid, signal.SIGSTOP)
    async with world.kernel() as kernel:
        assert (await kernel.get(id)).state == "error"
        os.kill(pid, 0)
    os.kill(pid, signal.SIGCONT)
    async with world.kernel() as kernel:
        assert (await kernel.get(id)).state == "running"
        assert await read(kernel, id, KEPT) == b"acknowledged"
    os.kill(pid, signal.SIGSTOP)
    async with world.kernel() as kernel:
        await kernel.stop(id)
        assert await world.remains_stopped(id) == []
        await kernel.remove(id)


async def test_control_an_idle_one_that_answers_is_left_alone(
    world: World, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked many times, it is never taken for silent; and being asked is no use of it."""
    async with world.kernel() as kernel:
        live = kernel.live[world.bystander]
        first = live.answered_at
        async with asyncio.timeout(10):
            while live.answered_at < first + 3 * watch.PING_EVERY_S:
                kernel._reaper.wake()
                await asyncio.sleep(0.02)
        assert (await kernel.get(world.bystander)).state == "running"
        assert not live.silent


# -- the launcher ---------------------------------------------------------------------------------


class Launchers(list["subprocess.Popen[bytes]"]):
    """All that were started. `held`: the next ones stop before they have done anything, so that a
    signal meets them at that moment, however fast they are."""

    held = False

    def signal(self, number: int) -> None:
        self[-1].send_signal(number)

    def words(self, words: list[str]) -> list[str]:
        return ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *words] if self.held else words


@pytest.fixture
def launchers(monkeypatch: pytest.MonkeyPatch) -> Launchers:
    started = Launchers()

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, words: list[str], **options: Any) -> None:
            super().__init__(started.words(words), **options)
            started.append(self)

    monkeypatch.setattr(launcher, "Popen", Noted)
    return started


@pytest.mark.parametrize("operation", ["create", "start"])
async def test_a_launcher_that_is_killed(
    operation: str, world: World, launchers: Launchers
) -> None:
    id = new_id()
    async with world.kernel() as kernel:
        await OPERATIONS[operation].before(kernel, id)
        launchers.held = True
        faults.arm("launcher.spawned", lambda: launchers.signal(signal.SIGKILL))
        with pytest.raises(LaunchError, match="launch ended with status -9"):
            await OPERATIONS[operation].do(kernel, id)
        launchers.held = False
        await world.check(kernel, set() if operation == "create" else {id})
        await OPERATIONS[operation].do(kernel, id)
        await kernel.remove(id)
        assert await world.remains(id) == []


async def test_a_launcher_that_stops(
    world: World, launchers: Launchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "LAUNCH_DEADLINE_S", PATIENCE)
    id = new_id()
    async with world.kernel() as kernel:
        launchers.held = True
        with pytest.raises(LaunchError, match="did not finish"):
            await OPERATIONS["create"].do(kernel, id)
        launchers.held = False
        await world.check(kernel, set())
        assert await world.remains(id) == []


async def test_a_remover_may_take_longer_than_a_launch(
    world: World, launchers: Launchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of files take their time."""
    id = new_id()
    loop = asyncio.get_running_loop()
    async with world.kernel() as kernel:
        await running(kernel, id)
        monkeypatch.setattr(launcher, "LAUNCH_DEADLINE_S", 0.1)
        launchers.held = True

        def go_on_later() -> None:
            """Again and again: it may not have stopped yet."""
            launchers.signal(signal.SIGCONT)
            if launchers[-1].returncode is None:
                loop.call_later(0.5, go_on_later)

        def later() -> None:
            loop.call_later(0.5, go_on_later)

        faults.arm("launcher.spawned", later)
        await kernel.remove(id)
        launchers.held = False
        assert await world.remains(id) == []


async def test_a_remover_that_is_killed(world: World, launchers: Launchers) -> None:
    """Nothing runs any more, the rest of its files is there; removing it again does it."""
    id = new_id()
    async with world.kernel() as kernel:
        await running(kernel, id)
        launchers.held = True
        faults.arm("launcher.spawned", lambda: launchers.signal(signal.SIGKILL))
        with pytest.raises(LaunchError, match="files of a sandbox can't be removed"):
            await kernel.remove(id)
        launchers.held = False
        assert (await kernel.get(id)).state == "removing"
        await world.check(kernel, {id})
        await kernel.remove(id)
        assert await world.remains(id) == []


@pytest.mark.parametrize("milliseconds", [1, 2, 4, 6, 9, 13, 18, 25])
async def test_a_launcher_that_is_killed_at_any_moment(
    milliseconds: int, world: World, launchers: Launchers
) -> None:
    """It is made, and works, or there is a typed error and nothing."""
    id = new_id()
    loop = asyncio.get_running_loop()
    async with world.kernel() as kernel:
        faults.arm(
            "launcher.spawned",
            lambda: loop.call_later(  # type: ignore[arg-type]
                milliseconds / 1000, launchers[-1].send_signal, signal.SIGKILL
            ),
        )
        try:
            await OPERATIONS["create"].do(kernel, id)
        except LaunchError:
            await world.check(kernel, set())
        else:
            assert (await kernel.run(id, ["echo", "alive"])).stdout == b"alive\n"
            await kernel.remove(id)
        assert await world.remains(id) == []
