"""Images from a registry to a sandbox: pulled once, told of, there when the registry is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import AgentKernelError, ImageInvalidError, NotFoundError
from agentkernel.images.oci.progress import PullProgress
from agentkernel.images.oci.registry import pulling
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

from ..images.registry_tool import Registry, make_image, make_layer, running_registry

APP = [make_layer({"word": b"first"}), make_layer({"other": b"x" * 300_000})]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
async def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    async with Kernel(state) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def word_in(kernel: Kernel, name: str) -> bytes:
    async with kernel.files(name) as files:
        return await files.read("/word")


async def test_pulled_when_missing_and_then_offline(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls = 0
    original = pulling.pull

    async def counted(*args: Any, **kwargs: Any) -> pulling.Pulled:
        nonlocal pulls
        pulls += 1
        return await original(*args, **kwargs)

    monkeypatch.setattr(pulling, "pull", counted)
    with running_registry(tmp_path / "registry") as registry:
        name = f"{registry.address}/app:1"
        first = registry.push("app", "1", make_image(APP))
        sentences: list[str] = []
        # Who wants the same at once shares one download.
        made = await asyncio.gather(
            *(
                kernel.create(SandboxSpec(image=name), name=f"box{at}", progress=sentences.append)
                for at in range(3)
            )
        )
        assert pulls == 1 and any(f"fetching {name}" in text for text in sentences)
        assert {record.blueprint["image"] for record in made} == {f"{name}@{first}"}
        second = registry.push("app", "1", make_image([make_layer({"word": b"second"}), APP[1]]))
        # A tag that moved is of no concern to who has the image already, unless asked for.
        await kernel.create(SandboxSpec(image=name), name="same")
        await kernel.create(SandboxSpec(image=name, pull="always"), name="newer")
        assert await word_in(kernel, "same") == b"first"
        assert await word_in(kernel, "newer") == b"second"
        told: list[PullProgress] = []
        info = await kernel.images.pull(name, progress=told.append)
        assert info.digest == second and {event.state for event in told} == {"present", "ready"}
        by_digest = await kernel.images.pull(f"{registry.address}/app@{first}")
        assert by_digest.digest == first
    await kernel.create(SandboxSpec(image=name), name="offline")
    assert await word_in(kernel, "offline") == b"second"
    await kernel.create(SandboxSpec(image=f"{name.rpartition(':')[0]}@{first}"), name="pinned")
    assert await word_in(kernel, "pinned") == b"first"
    with pytest.raises(AgentKernelError) as caught:
        await kernel.create(SandboxSpec(image=name, pull="always"), name="never")
    assert caught.value.code in ("registry_failed", "registry_unavailable")
    assert "never" not in {record.name for record in (await kernel.list()).records}


async def test_what_a_registry_has_not(kernel: Kernel, registry: Registry) -> None:
    with pytest.raises(NotFoundError):
        await kernel.create(SandboxSpec(image=f"{registry.address}/absent:1"), name="box")
    assert (await kernel.list()).records == []
    with pytest.raises(ImageInvalidError, match="not for windows/arm64"):
        registry.push("app", "1", make_image(APP))
        await kernel.images.pull(f"{registry.address}/app:1", platform="windows/arm64")
    assert await kernel.images.list() == []


async def test_a_layer_that_is_no_layer_gives_no_name(kernel: Kernel, registry: Registry) -> None:
    """Its digest is what the manifest says: only unpacking it tells."""
    wrong = make_image([make_layer({"../../up": b"x"})])
    registry.push("wrong", "1", wrong)
    with pytest.raises(ImageInvalidError):
        await kernel.images.pull(f"{registry.address}/wrong:1")
    assert await kernel.images.list() == []
    with pytest.raises(ImageInvalidError):
        await kernel.create(SandboxSpec(image=f"{registry.address}/wrong:1"), name="box")
    assert (await kernel.images.prune()).blobs == 3
