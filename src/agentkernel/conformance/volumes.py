"""Volumes: what sandboxes have of a directory that outlives them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from agentkernel.backends.base import Sandbox, VolumeMount
from agentkernel.backends.local.volumes import VolumeFiles
from agentkernel.conformance.bench import Bench, expect, says, sh
from agentkernel.ids import new_id


@contextlib.asynccontextmanager
async def _volume(bench: Bench) -> AsyncIterator[str]:
    files, id = VolumeFiles(bench.state_dir), new_id()
    await files.make(id, None)
    try:
        yield id
    finally:
        await files.remove(id)
    expect(id not in files.ids(), "the volume is left behind")


@contextlib.asynccontextmanager
async def _sandbox(bench: Bench, *volumes: VolumeMount) -> AsyncIterator[Sandbox]:
    blueprint = msgspec.structs.replace(bench.blueprint(owned=True), volumes=volumes)
    sandbox = await bench.backend().create(blueprint)
    try:
        yield sandbox
    finally:
        footprint = bench.footprint(sandbox)
        await sandbox.destroy()
    await bench.expect_gone(footprint)


async def volumes_outlive_sandboxes(bench: Bench) -> None:
    """what one sandbox leaves in a volume the next one finds, wherever each of them has it"""
    async with _volume(bench) as id:
        mount = VolumeMount(id=id, name="v", path="/var/volume/deep")
        async with _sandbox(bench, mount) as first:
            await says(first, "cd /var/volume/deep; echo kept > f; mkdir d; cp /bin/true d/run")
        mount = msgspec.structs.replace(mount, path="/tmp/volume")
        async with _sandbox(bench, mount) as second:
            found = await says(second, "cat /tmp/volume/f; /tmp/volume/d/run && echo runs")
            expect(found == "kept\nruns\n", found)


async def volumes_are_shared_or_read_only(bench: Bench) -> None:
    """changes are seen by others at once; who has it read-only can change nothing"""
    async with _volume(bench) as id:
        mount = VolumeMount(id=id, name="v", path="/v")
        reading = msgspec.structs.replace(mount, read_only=True)
        async with _sandbox(bench, mount) as writer, _sandbox(bench, reading) as reader:
            for word in ("one", "two"):
                await says(writer, f"echo {word} > /v/f; mkdir /v/{word}")
                expect(await says(reader, "cat /v/f") == f"{word}\n", word)
                expect(word in await says(reader, "ls /v"), f"the directory {word}")
            for script in ("echo x > /v/f", "rm /v/f", "touch /v/new", "chmod 700 /v"):
                expect((await sh(reader, script)).status.exit_code, f"read-only: {script}")
            expect(await says(writer, "cat /v/f") == "two\n", "unchanged")


CASES = (volumes_outlive_sandboxes, volumes_are_shared_or_read_only)
