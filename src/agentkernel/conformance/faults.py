"""kill -9 at the worst moments."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal

from agentkernel.backends.base import Sandbox
from agentkernel.conformance.bench import (
    Bench,
    alive,
    children,
    expect,
    sh,
    start,
    until,
    within,
)
from agentkernel.conformance.footprint import Footprint
from agentkernel.errors import SandboxUnavailableError
from agentkernel.guest.processes import Outcome

# Moments of a launch, in seconds from its beginning.
_MOMENTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)


async def any_process_of_it_may_die(bench: Bench) -> None:
    """each host process of the engine killed in turn: it ends, or is whole, and leaves nothing"""
    number = 0
    while True:
        blueprint = bench.blueprint()
        sandbox = await bench.backend().create(blueprint)
        seen = bench.footprint(sandbox)
        try:
            # The engine's own; what is further below are the guest's, or stand for them.
            targets = [sandbox.pid, *children(sandbox.pid)]
            if number >= len(targets):
                return
            process = start(sandbox, "sleep 1000")
            await within(process.started())
            seen = bench.footprint(sandbox)
            with contextlib.suppress(ProcessLookupError):  # a helper that had done its work
                os.kill(targets[number], signal.SIGKILL)
            number += 1
            if await _is_whole(sandbox):
                continue  # it was one that the engine can do without
            await until(functools.partial(_ended, seen), f"all of {seen.processes} ends")
            expect(await bench.backend().reattach(blueprint) is None, "it does not run any more")
        finally:
            await sandbox.destroy()
            await bench.expect_gone(seen)


def _ended(footprint: Footprint) -> bool:
    return not alive(footprint.processes)


async def _is_whole(sandbox: Sandbox) -> bool:
    """It runs a command; or it has ended, and says so."""
    try:
        status = (await sh(sandbox, "cat /etc/hostname > /root/x")).status
    except SandboxUnavailableError:
        return False
    if status.outcome is Outcome.LOST:
        return False
    expect(status.exit_code == 0, f"half a sandbox: {status}")
    return True


async def an_owner_may_die_while_launching(bench: Bench) -> None:
    """the owner of a kept sandbox is killed while it launches; removal finds everything"""
    for moment in _MOMENTS:
        blueprint = bench.blueprint()
        async with bench.owner(blueprint) as owner:
            parent = bench.state_dir / "sandboxes" / blueprint.id
            await until(parent.exists, "the launch begins")
            await asyncio.sleep(moment)
            owner.kill()
            await owner.wait()
        await bench.backend().remove(blueprint.id)
        await bench.expect_gone(blueprint.id)


async def an_owner_may_die_while_running(bench: Bench) -> None:
    """the same for runs, which the next start removes"""
    for moment in _MOMENTS[::2]:
        blueprint = bench.blueprint(owned=True)
        async with bench.owner(blueprint) as owner:
            await until((bench.state_dir / "runs" / blueprint.id).exists, "the launch begins")
            await asyncio.sleep(moment)
            owner.kill()
            await owner.wait()
        await bench.backend().collect_garbage()
        await bench.expect_gone(blueprint.id)


CASES = (
    any_process_of_it_may_die,
    an_owner_may_die_while_launching,
    an_owner_may_die_while_running,
)
