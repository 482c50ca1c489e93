"""Create, stop, start, find again, remove."""

from __future__ import annotations

from agentkernel.conformance.bench import (
    Bench,
    alive,
    expect,
    says,
    sh,
    until,
)
from agentkernel.conformance.footprint import Footprint
from agentkernel.errors import NotFoundError

# In a session of its own, and known to be there.
_LEAVE_SLEEP = (
    "(setsid sleep 1000 > /dev/null 2>&1 &); "
    "until cat /proc/[0-9]*/comm 2>/dev/null | grep -qx sleep; do :; done"
)
_SLEEPS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep || true"


async def it_says_what_it_is(bench: Bench) -> None:
    """name, isolation and features, and line by line what holds in a sandbox"""
    backend = bench.backend()
    described = backend.describe()
    expect(described["name"] == bench.name == backend.name, described)
    expect(described["isolation"].partition(":")[0].endswith("kernel"), described)
    async with bench.sandbox() as sandbox:
        lines = {line.what: line for line in sandbox.effective}
        for what in (
            "isolation",
            "ids",
            "capabilities of root",
            "network",
            "memory",
            "pids",
            "disk",
        ):
            expect(what in lines and lines[what].enforced_by, f"no line says what holds for {what}")


async def files_outlive_a_stop(bench: Bench) -> None:
    """stop ends every process; start runs on the same files; both may be called again"""
    blueprint, backend = bench.blueprint(), bench.backend()
    sandbox = await backend.create(blueprint)
    try:
        await says(sandbox, "echo kept > /root/file; rm /usr/bin/yes; echo gone > /tmp/file")
        await says(sandbox, _LEAVE_SLEEP)
        seen = bench.footprint(sandbox)
        await sandbox.stop(grace_seconds=0.2)
        await sandbox.stop()
        await until(lambda: not alive(seen.processes), "its processes end")
        expect(await bench.backend().reattach(blueprint) is None, "a stopped one is not running")
        expect(blueprint.id in bench.backend().kept(), "a stopped one is kept")
        sandbox = await bench.backend().start(blueprint)
        script = f"cat /root/file; ls /usr/bin/yes /tmp/file 2>/dev/null; {_SLEEPS}"
        expect(await says(sandbox, script) == "kept\n0\n", "files after a start")
    finally:
        await sandbox.stop()
        await backend.remove(blueprint.id)
        await backend.remove(blueprint.id)
    await bench.expect_gone(blueprint.id)
    try:
        await backend.start(blueprint)
    except NotFoundError:
        return
    expect(False, "what is gone can't be started")


async def it_outlives_its_owner(bench: Bench) -> None:
    """the owner is killed; the next one finds the sandbox with its processes and files"""
    blueprint = bench.blueprint()
    async with bench.owner(blueprint) as owner:
        assert owner.stdout is not None
        expect((await owner.stdout.readline()).startswith(b"made"), "the owner could not make it")
        first = await bench.backend().reattach(blueprint)
        expect(first is not None, "not found while its owner lives")
        assert first is not None
        await says(first, f"echo kept > /root/file; {_LEAVE_SLEEP}")
        first.channel.close()
        owner.kill()
        await owner.wait()
    sandbox = await bench.backend().reattach(blueprint)
    expect(sandbox is not None, "not found after its owner's death")
    assert sandbox is not None
    try:
        expect(await says(sandbox, f"cat /root/file; {_SLEEPS}") == "kept\n1\n", "as it was left")
        expect(sandbox.effective == first.effective, "the same lines hold")
        seen = bench.footprint(sandbox)
        sandbox.channel.close()
    finally:
        await bench.backend().remove(blueprint.id)
    await bench.expect_gone(seen)


async def a_run_ends_with_its_owner(bench: Bench) -> None:
    """the owner of a run is killed; its processes end, and the next start removes the rest"""
    blueprint = bench.blueprint(owned=True)
    async with bench.owner(blueprint) as owner:
        assert owner.stdout is not None
        line = await owner.stdout.readline()
        expect(line.startswith(b"made"), "the owner could not make it")
        seen = Footprint.of(blueprint.id, bench.state_dir, [int(line.split()[1])])
        expect(alive(seen.processes), "it has no process")
        owner.kill()
        await owner.wait()
    await until(lambda: not alive(seen.processes), "its processes end by themselves")
    expect(await bench.backend().collect_garbage() >= 1, "garbage was found")
    await bench.expect_gone(seen)


async def two_do_not_meet(bench: Bench) -> None:
    """two sandboxes see neither each other's processes nor files in memory"""
    async with bench.sandbox() as one, bench.sandbox() as other:
        await says(one, f"{_LEAVE_SLEEP}; echo x > /dev/shm/x; echo x > /tmp/x")
        expect((await says(other, _SLEEPS)).strip() == "0", "processes")
        expect(not (await sh(other, "ls /dev/shm /tmp | grep x")).stdout, "files in memory")


CASES = (
    it_says_what_it_is,
    files_outlive_a_stop,
    it_outlives_its_owner,
    a_run_ends_with_its_owner,
    two_do_not_meet,
)
