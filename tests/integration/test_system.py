"""What everything takes on the disk, what of it can go, and what is refused before it is full."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel import space
from agentkernel.errors import ResourceExhaustedError
from agentkernel.images import cache
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.disk_records import DiskPart, Kind, Pruned
from agentkernel.kernel.health import state_directory
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

MIB = 1 << 20


@pytest.fixture(scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kernel]:
    """Images of these tests' own: what is pruned is not another's."""
    async with Kernel(tmp_path_factory.mktemp("system")) as kernel:
        yield kernel


@pytest.fixture(autouse=True)
async def nothing_stays(kernel: Kernel) -> AsyncIterator[None]:
    yield
    space.set_reserve(None)
    for record in (await kernel.list()).records:
        await kernel.remove(record.id)
    for info in await kernel.volumes.list():
        await kernel.volumes.remove(info.id)
    kernel.images.store.remove_partial()
    await kernel.images.prune()


async def part(kernel: Kernel, kind: Kind) -> DiskPart:
    (found,) = [part for part in (await kernel.system.df()).parts if part.kind == kind]
    return found


async def kept(kernel: Kernel, name: str, *volumes: str, owner: str = "local") -> str:
    spec = SandboxSpec(ephemeral=False, unlimited_disk=True, volumes=list(volumes))
    return (await kernel.create(spec, name=name, owner=owner)).id


def names(pruned: Pruned, kind: Kind) -> list[str | None]:
    return [item.name for item in pruned.items if item.kind == kind and item.problem is None]


async def test_what_takes_what_and_what_can_go(kernel: Kernel) -> None:
    one = await kept(kernel, "one", "used:/v")
    two = await kept(kernel, "two")
    other = await kept(kernel, "three", owner="token:ci")
    await kernel.volumes.create("unused", owner="local")
    await kernel.volumes.create("theirs", owner="token:ci")
    # A guest's own files may be closed to us, and in places that lead elsewhere.
    await kernel.run(
        one,
        ["sh", "-c", "head -c 2000000 /dev/zero > /v/f; head -c 3000000 /dev/zero > /root/f; "
         "mkdir -m 0 /root/closed; ln -s / /root/all; chown 33 /root/f || true"],
    )  # fmt: skip
    sandboxes, volumes = await part(kernel, "sandboxes"), await part(kernel, "volumes")
    assert (sandboxes.count, sandboxes.reclaimable_bytes) == (3, 0)
    assert 3_000_000 <= sandboxes.bytes < 8 * MIB and sandboxes.complete
    assert volumes.count == 3 and 2_000_000 <= volumes.bytes < 4 * MIB
    assert volumes.reclaimable_bytes < MIB
    for kind in ("layers", "records", "audit"):
        assert (await part(kernel, kind)).bytes > 0
    for id in (one, other):
        await kernel.stop(id, grace_seconds=0)
    assert (await part(kernel, "sandboxes")).reclaimable_bytes >= 3_000_000
    usage = await kernel.system.df()
    assert usage.free_bytes <= usage.total_bytes and not usage.short

    # Nothing of anybody's goes unasked, nor for a dry run, nor anything of another owner's.
    pruned = await kernel.system.prune(owner="local")
    assert names(pruned, "sandboxes") == names(pruned, "volumes") == []
    planned = await kernel.system.prune(owner="local", sandboxes=True, volumes=True, dry_run=True)
    assert names(planned, "sandboxes") == ["one"]
    assert sorted(names(planned, "volumes"), key=str) == ["unused", "used"]
    assert planned.dry_run and planned.bytes >= 5_000_000
    assert len((await kernel.list()).records) == 3 and len(await kernel.volumes.list()) == 3
    pruned = await kernel.system.prune(owner="local", volumes=True)
    assert names(pruned, "volumes") == ["unused"], "a stopped sandbox has the other"
    pruned = await kernel.system.prune(owner="local", sandboxes=True, volumes=True)
    assert names(pruned, "sandboxes") == ["one"] and names(pruned, "volumes") == ["used"]
    assert {record.id for record in (await kernel.list()).records} == {two, other}
    assert [info.name for info in await kernel.volumes.list()] == ["theirs"]
    kinds = [record.kind for record in (await kernel.events(limit=1000)).records]
    assert "system.pruned" in kinds


def _a_file(layer: str) -> None:
    Path(layer, "f").write_bytes(bytes(MIB))


async def test_layers_blobs_and_downloads_that_nothing_needs(kernel: Kernel) -> None:
    id = await kept(kernel, "box")
    images = kernel.state_dir / "images"
    store = kernel.images.store
    used = {path.name for path in (images / "layers").iterdir()}
    # A layer of some older version of the machine, one that was looked up lately, and content that
    # nobody has a name for.
    for name in ("host-old", "host-new"):
        cache.layer(images, name, _a_file)
    long_ago = time.time() - 3600
    os.utime(images / "layers" / "host-old.used", (long_ago, long_ago))
    digest = store.put_document(b"{}" * 5000)
    (images / "partial").mkdir(exist_ok=True)
    (images / "partial" / ("0" * 64)).write_bytes(bytes(MIB))
    builds = images / "build-cache"
    builds.mkdir()
    for name, age in (("old.json", 2 * 24 * 3600), ("new.json", 3600)):
        (builds / name).write_bytes(bytes(10_000))
        os.utime(builds / name, (time.time() - age, time.time() - age))
    assert 10_000 <= (await part(kernel, "builds")).reclaimable_bytes < 20_000
    layers = await part(kernel, "layers")
    assert MIB <= layers.reclaimable_bytes < 2 * MIB
    assert (await part(kernel, "blobs")).reclaimable_bytes >= 10_000
    assert (await part(kernel, "downloads")).reclaimable_bytes >= MIB
    planned = await kernel.system.prune(dry_run=True)
    assert {(item.kind, item.id) for item in planned.items} == {
        ("layers", "host-old"), ("blobs", digest), ("downloads", "0" * 64),
        ("builds", "build-cache"),
    }  # fmt: skip
    assert (images / "layers" / "host-old").is_dir() and store.has_blob(digest)
    pruned = await kernel.system.prune()
    assert [item.problem for item in pruned.items] == [None] * 4
    assert pruned.bytes == planned.bytes
    left = {path.name for path in (images / "layers").iterdir()}
    assert left == used | {"host-new", "host-new.used"}
    assert not store.has_blob(digest) and not list((images / "partial").iterdir())
    assert os.listdir(builds) == ["new.json"]
    assert (await kernel.run(id, ["echo", "alive"])).stdout == b"alive\n"
    assert (await kernel.system.prune()).items == []


async def test_nothing_of_images_goes_while_one_is_added(kernel: Kernel) -> None:
    await kept(kernel, "box")
    digest = kernel.images.store.put_document(b"{}" * 5000)
    with kernel.images.store.adding():
        pruned = await kernel.system.prune()
    assert [item.problem for item in pruned.items] and pruned.bytes == 0
    assert kernel.images.store.has_blob(digest)
    assert (await kernel.system.prune()).bytes > 0


async def test_nothing_new_below_the_reserve(kernel: Kernel) -> None:
    id = await kept(kernel, "before")
    before = (await kernel.events(limit=1000)).newest
    space.set_reserve(1 << 60)
    for work in (kernel.create(SandboxSpec()), kernel.volumes.create("v", owner="local")):
        with pytest.raises(ResourceExhaustedError, match="nearly full") as caught:
            await work
        assert "agentkernel system prune" in (caught.value.hint or "")
    with pytest.raises(ResourceExhaustedError):
        await kernel.create(SandboxSpec())
    assert [record.id for record in (await kernel.list()).records] == [id]
    assert await kernel.volumes.list() == []
    usage = await kernel.system.df()
    assert usage.short and usage.reserve_bytes == 1 << 60
    events = (await kernel.events(before, limit=1000)).records
    (told,) = [event for event in events if event.kind == "disk.low"]
    assert told.body["reserve_bytes"] == 1 << 60
    finding = state_directory(str(kernel.state_dir))
    assert finding.state == "warn" and "system prune" in (finding.hint or "")
    # What is there goes on.
    await kernel.stop(id, grace_seconds=0)
    await kernel.start(id)
    assert (await kernel.run(id, ["echo", "alive"])).stdout == b"alive\n"


async def test_the_users_own_reserve(tmp_path: Path) -> None:
    Kernel(tmp_path, admission=Admission(disk_reserve_bytes=123))
    assert space.room_at("/").reserve == 123
    Kernel(tmp_path)
    assert space.room_at("/").reserve > 123


async def test_an_import_stops_at_the_reserve(kernel: Kernel) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        header = bytearray(b"big".ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2)
        header += b"%011o\0" % (1 << 30) + b"00000000000\0" + b" " * 8 + b"0" + bytes(100)
        header += b"ustar\x0000" + bytes(247)
        header[148:156] = b"%06o\0 " % sum(header)
        yield bytes(header)
        for number in range(1 << 10):
            if number == 20:
                space.set_reserve(1 << 60)
            yield bytes(MIB)

    with pytest.raises(ResourceExhaustedError, match="nearly full"):
        await kernel.volumes.import_archive("big", pieces(), owner="local")
    assert await kernel.volumes.list() == []
    assert os.listdir(kernel.state_dir / "volumes") == []
