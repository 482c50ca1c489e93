"""Kits of agents: installed once for all sandboxes, whole or not at all, read-only to everybody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agentkernel.errors import (
    AgentInstallError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from agentkernel.kernel.agents.kit_model import KITS
from agentkernel.kernel.building.model import (
    BuildEvent,
    BuildNote,
    BuildOutput,
    BuildStarted,
    BuildStep,
    BuildStepDone,
)
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import Overseer
from agentkernel.kernel.volumes import OURS
from agentkernel.network.policy.request import NetworkRequest
from tests.oci_images import add_image, busybox_layer

# An agent whose program is a script that says its version.
MADE = """
mkdir -p {kit}/bin {kit}/lib/x-1.dist-info
printf 'a,b\\n' > {kit}/lib/x-1.dist-info/RECORD
printf '{{}}' > {kit}/package-lock.json
printf '#!/bin/sh\\necho %s {version}\\n' "$GREETING" > {kit}/bin/tiny
chmod +x {kit}/bin/tiny
echo filled
"""
NeedEngine = Callable[[str], Awaitable[None]]
KEPT = SandboxSpec(ephemeral=False, network=NetworkRequest(presets=["none"]))
OFFLINE = SandboxSpec(network=NetworkRequest(presets=["none"]))


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the user's own definitions are."""
    config = tmp_path_factory.mktemp("config")
    directory = config / "agentkernel" / "agents"
    directory.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(config))
        yield directory


@pytest.fixture(scope="module")
async def kernel(
    state_dir: Path, definitions: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kernel]:
    path = tmp_path_factory.mktemp("kits")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel


@pytest.fixture(autouse=True)
async def nothing_stays(kernel: Kernel, definitions: Path) -> AsyncIterator[None]:
    yield
    for record in (await kernel.list()).records:
        await kernel.remove(record.id)
    for info in await kernel.volumes.list(OURS):
        await kernel.agents.kits.drop(info.id)
    (definitions / "tiny.toml").unlink()
    kernel.agents.definitions.versions.choose("tiny", None)
    for path in (kernel.state_dir / "volumes", kernel.state_dir / "agents" / "kits"):
        assert not path.exists() or os.listdir(path) == []


def define(
    directory: Path,
    *,
    version: str = "1.0",
    step: str = MADE,
    check: str = '["tiny"]',
    needs: str = "[]",
) -> None:
    (directory / "tiny.toml").write_text(
        f"""
name = "tiny"
title = "Tiny"
version = "{version}"
[install]
needs = {needs}
needs_hint = "get it from its shop"
steps = [["sh", "-euc", '''{step}''']]
environment = {{ GREETING = "hello" }}
path = ["{{kit}}/bin"]
check = {check}
[command]
headless = ["tiny", "{{task}}"]
""".replace("{{}}", "{}")
    )


class Told:
    def __init__(self) -> None:
        self.events: list[BuildEvent] = []
        self.told = asyncio.Event()

    async def __call__(self, event: BuildEvent) -> None:
        self.events.append(event)
        self.told.set()

    @property
    def output(self) -> str:
        return "".join(one.text for one in self.events if isinstance(one, BuildOutput))


async def said(kernel: Kernel, id: str, *argv: str) -> str:
    result = await kernel.run(id, argv)
    return (result.stdout + result.stderr).decode().strip()


async def test_installed_once_and_mounted_read_only(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    kits, told = kernel.agents.kits, Told()
    kit = await kits.install("tiny", report=told)
    assert [type(event) for event in told.events if not isinstance(event, BuildOutput)] == [
        BuildStarted, BuildStep, BuildStepDone, BuildStep, BuildStepDone,
    ]  # fmt: skip
    assert told.output == "filled\nhello 1.0\n"
    assert kit.version == "1.0" and kit.current and kit.sandboxes == 0 and kit.used_bytes
    assert {lock.path: lock.files for lock in kit.locks} == {
        "package-lock.json": 1,
        "*.dist-info/RECORD": 1,
    }
    # A second time nothing is done, by whoever.
    again = Told()
    assert (await kits.install("tiny", report=again)).id == kit.id and again.events == []
    mount = await kits.ready(kernel.agents.definitions.get("tiny"))
    assert (mount.id, mount.path, mount.read_only) == (kit.id, f"{KITS}/tiny", True)
    # No sandbox of the installation is left, and the volume is nobody's.
    assert (await kernel.list()).records == []
    assert await kernel.volumes.list() == await kernel.volumes.list("local") == []
    for whom in ("local", Overseer("local")):
        for id in (mount.name, mount.id):
            with pytest.raises(NotFoundError):
                await kernel.volumes.inspect(id, owner=whom)

    record = await kernel.create(OFFLINE, mounts=[mount])
    assert await said(kernel, record.id, f"{KITS}/tiny/bin/tiny") == "hello 1.0"
    refused = await said(kernel, record.id, "touch", f"{KITS}/tiny/bin/tiny")
    assert "Read-only" in refused
    info = await kits.get("tiny")
    assert info.kit and info.kit.sandboxes == 1
    with pytest.raises(ConflictError, match="in use") as caught:
        await kits.remove("tiny")
    assert record.id not in str(caught.value.to_dict()), "it may be another owner's"
    await kernel.remove(record.id)
    await kits.remove("tiny")
    with pytest.raises(NotFoundError):
        await kits.remove("tiny")


async def test_found_again_by_another_kernel(own_state: Path, definitions: Path) -> None:
    define(definitions)
    async with Kernel(own_state) as first:
        mount = await first.agents.kits.ready(first.agents.definitions.get("tiny"))
        await first.create(KEPT, name="work", mounts=[mount])
        await first.stop("work", grace_seconds=0)
    async with Kernel(own_state) as second:
        listed = {info.name: info for info in await second.agents.kits.list()}
        assert listed["tiny"].kit and listed["tiny"].kit.id == mount.id
        await second.start("work")
        assert await said(second, "work", f"{KITS}/tiny/bin/tiny") == "hello 1.0"
        await second.remove("work")
        await second.agents.kits.remove("tiny")


@pytest.mark.parametrize("engine", ["native", "runc", "crun", "gvisor"])
async def test_kept_over_stop_and_start(
    kernel: Kernel, definitions: Path, need_engine: NeedEngine, engine: str
) -> None:
    await need_engine(engine)
    define(definitions)
    mount = await kernel.agents.kits.ready(kernel.agents.definitions.get("tiny"))
    spec = msgspec.structs.replace(KEPT, backend=engine)
    record = await kernel.create(spec, mounts=[mount])
    await kernel.stop(record.id, grace_seconds=0)
    await kernel.start(record.id)
    assert await said(kernel, record.id, f"{KITS}/tiny/bin/tiny") == "hello 1.0"
    assert "ead-only" in await said(kernel, record.id, "touch", f"{KITS}/tiny/x")


@pytest.mark.parametrize(
    ("step", "check", "needs", "words", "hint"),
    [
        (
            "echo why; echo so far; exit 3",
            "[]",
            "[]",
            r"1 of 1: .*status 3.*why \| so",
            "agent install",
        ),
        (MADE, '["sh", "-c", "echo broken; exit 1"]', "[]", "does not work: .*broken", "install"),
        ("true", '["not-there"]', "[]", "does not work", "install"),
        (MADE, "[]", '["sh", "npm-that-is-not-here"]', "no npm-that-is-not-here", "its shop"),
    ],
    ids=["step", "check", "no program", "needs"],
)
async def test_of_one_that_fails_nothing_is_left(
    kernel: Kernel, definitions: Path, step: str, check: str, needs: str, words: str, hint: str
) -> None:
    define(definitions, step=step, check=check, needs=needs)
    with pytest.raises(AgentInstallError, match=words) as caught:
        await kernel.agents.kits.install("tiny", report=Told())
    assert hint in (caught.value.hint or "")
    assert await kernel.volumes.list(OURS) == []
    assert (await kernel.list()).records == []
    assert os.listdir(kernel.state_dir / "volumes") == []
    # The same, mended, works.
    define(definitions)
    assert (await kernel.agents.kits.install("tiny", report=Told())).current


async def test_of_several_at_once_one_installs_it(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    kits, told = kernel.agents.kits, [Told(), Told(), Told()]
    found = await asyncio.gather(*(kits.install("tiny", report=one) for one in told))
    assert len({kit.id for kit in found}) == 1
    assert len(await kernel.volumes.list(OURS)) == 1
    waited = [one for one in told if any(isinstance(event, BuildNote) for event in one.events)]
    assert len(waited) == 2 and sum(bool(one.output) for one in told) == 1


async def test_it_goes_on_while_anybody_waits(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    kits, begun = kernel.agents.kits, asyncio.Event()

    async def hold(event: BuildEvent) -> None:
        """Never comes to an end."""
        begun.set()
        await asyncio.Event().wait()

    first = asyncio.ensure_future(kits.install("tiny", report=hold))
    await begun.wait()
    waits = Told()
    second = asyncio.ensure_future(kits.install("tiny", report=waits))
    await waits.told.wait()  # that it waits
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).version == "1.0"
    await kits.remove("tiny")
    # With the last one it ends.
    begun.clear()
    third = asyncio.ensure_future(kits.install("tiny", report=hold))
    await begun.wait()
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert await kernel.volumes.list(OURS) == [] and kits._under_way == {}
    # Whoever comes while it is being taken back gets one of their own.
    begun.clear()
    fourth = asyncio.ensure_future(kits.install("tiny", report=hold))
    await begun.wait()
    fourth.cancel()
    await asyncio.sleep(0)
    assert [one.given_up for one in kits._under_way.values()] == [True]
    assert (await kits.install("tiny", report=Told())).version == "1.0"


async def test_updates(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    kits = kernel.agents.kits
    mount = await kits.ready(kernel.agents.definitions.get("tiny"))
    record = await kernel.create(OFFLINE, mounts=[mount])
    define(definitions, version="2.0")
    info = await kits.get("tiny")
    assert info.version == "2.0" and info.kit is None
    assert [kit.version for kit in info.older] == ["1.0"]
    newer = await kits.update("tiny", report=Told())
    # The sandbox that is there keeps its own, and with it the kit.
    assert await said(kernel, record.id, f"{KITS}/tiny/bin/tiny") == "hello 1.0"
    assert len(await kernel.volumes.list(OURS)) == 2
    await kernel.remove(record.id)
    # A chosen version counts until the next update, also in another process.
    chosen = await kits.update("tiny", report=Told(), version="3.0-rc.1")
    assert [one.id for one in await kernel.volumes.list(OURS)] == [chosen.id] != [newer.id]
    info = await kits.get("tiny")
    assert (info.version, info.pinned, info.definition["version"]) == (
        "3.0-rc.1",
        "2.0",
        "3.0-rc.1",
    )
    assert type(kernel.agents.definitions.versions)(kernel.state_dir / "agents") == {
        "tiny": "3.0-rc.1"
    }
    await kits.update("tiny", report=Told())
    info = await kits.get("tiny")
    assert (info.version, info.pinned, info.older) == ("2.0", "2.0", [])
    # One that fails leaves all as it was.
    define(definitions, version="4.0", step="exit 1")
    with pytest.raises(AgentInstallError):
        await kits.update("tiny", report=Told(), version="5.0")
    assert (await kits.get("tiny")).version == "4.0"
    assert [kit.version for kit in (await kits.get("tiny")).older] == ["2.0"]


async def test_df_and_prune(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    await kernel.agents.kits.install("tiny", report=Told())

    async def part() -> tuple[int, int, bool]:
        (found,) = (one for one in (await kernel.system.df()).parts if one.kind == "kits")
        return found.count, found.bytes > 0, found.reclaimable_bytes > 0

    assert await part() == (1, True, False)
    pruned = await kernel.system.prune(volumes=True)
    assert [item for item in pruned.items if item.kind in ("kits", "volumes")] == []
    define(definitions, version="2.0")
    assert await part() == (1, True, True)
    pruned = await kernel.system.prune(dry_run=True)
    assert [item.kind for item in pruned.items if item.kind == "kits"] == ["kits"]
    assert await part() == (1, True, True)
    await kernel.system.prune()
    assert await part() == (0, False, False)
    # Of a file that can't be read now nothing goes.
    await kernel.agents.kits.install("tiny", report=Told())
    (definitions / "tiny.toml").write_text("no [toml")
    assert await part() == (1, True, False)
    (info,) = (one for one in await kernel.agents.kits.list() if one.name == "tiny")
    assert info.problem and "tiny.toml" in info.problem


async def test_no_volume_of_a_user_gets_in_the_way(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    mount = await kernel.agents.kits.ready(kernel.agents.definitions.get("tiny"))
    for place in (KITS, f"{KITS}/tiny", f"{KITS}/tiny/bin"):
        spec = SandboxSpec(network=OFFLINE.network, volumes=[f"mine:{place}"])
        with pytest.raises(InvalidInputError, match="something of its own"):
            await kernel.create(spec, mounts=[mount])
    # By the kit's name an owner has a volume of their own.
    spec = SandboxSpec(network=OFFLINE.network, volumes=[f"{mount.name}:/data"])
    record = await kernel.create(spec, mounts=[mount])
    assert await said(kernel, record.id, "ls", "/data") == ""
    await kernel.remove(record.id)
    (mine,) = await kernel.volumes.list("local")
    await kernel.volumes.remove(mine.id)


async def test_whatever_image_the_sandbox_stands_on(kernel: Kernel, definitions: Path) -> None:
    define(definitions)
    mount = await kernel.agents.kits.ready(kernel.agents.definitions.get("tiny"))
    store = kernel.images.store
    with store.adding():
        add_image(store, "localhost/kit-base:1", [busybox_layer()], Env=["PATH=/bin"])
    spec = SandboxSpec(image="localhost/kit-base:1", network=OFFLINE.network)
    record = await kernel.create(spec, mounts=[mount])
    assert await said(kernel, record.id, f"{KITS}/tiny/bin/tiny") == "hello 1.0"
    assert "ead-only" in await said(kernel, record.id, "/bin/touch", f"{KITS}/tiny/x")
    await kernel.remove(record.id)
    await kernel.images.remove("localhost/kit-base:1")
