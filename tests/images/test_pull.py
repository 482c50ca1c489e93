"""Images from a real registry: what is pulled is what was pushed, once, and found again offline."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.errors import ImageInvalidError, NotFoundError, RegistryDeniedError, RegistryError
from agentkernel.images.oci.model import Platform
from agentkernel.images.oci.progress import Overall, PullProgress
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.pulling import Pulled, pull
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore
from tests.images.conftest import QUICK
from tests.images.registry_tool import (
    PASSWORD,
    USER,
    MadeImage,
    Registry,
    make_image,
    make_index,
    make_layer,
    running_registry,
)

BIG = make_layer({"big": os.urandom(3 << 20)})
SMALL = make_layer({"etc/hello": b"hi\n"})
IMAGE = make_image([BIG, SMALL], config={"Env": ["A=b"], "Cmd": ["/bin/true"]})
ARM = make_image([SMALL], architecture="arm64", compression="zstd", docker=True)
INDEX = make_index({"linux/arm64/v8": ARM, "linux/amd64": IMAGE})
NESTED = make_index({"linux/amd64": INDEX}, docker=True)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        running.push("team/app", "1.0", IMAGE)
        running.push("team/app", "arm", ARM)
        running.push("team/app", "multi", INDEX)
        running.push("team/app", "nested", NESTED)
        yield running


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("closed"), login=True) as running:
        running.push("private", "1", IMAGE)
        yield running


async def pulled(
    store: ImageStore, text: str, settings: RegistrySettings = QUICK, machine: str = "amd64"
) -> Pulled:
    platform = Platform(architecture=machine, os="linux")
    return await pull(store, parse_reference(text), settings=settings, platform=platform)


def require_whole(store: ImageStore, image: MadeImage) -> None:
    """Every byte that was pushed is here, under its digest."""
    assert store.read_document(image.digest) == image.manifest
    for digest, content in image.blobs.items():
        assert store.blob_path(digest).read_bytes() == content
    assert list((store.directory / "partial").iterdir()) == []


async def test_by_tag(registry: Registry, store: ImageStore) -> None:
    done = await pulled(store, f"{registry.address}/team/app:1.0")
    assert done.digest == IMAGE.digest
    assert (done.layers, done.layers_present, done.source) == (2, 0, "")
    assert done.downloaded_bytes == sum(len(IMAGE.blobs[layer]) for layer in IMAGE.layers)
    require_whole(store, IMAGE)
    found = store.find(f"{registry.address}/team/app:1.0")
    assert found.digest == IMAGE.digest
    assert found.config.process.environment == {"A": "b"}
    again = await pulled(store, f"{registry.address}/team/app:1.0")
    assert (again.layers_present, again.downloaded_bytes) == (2, 0)


async def test_by_digest_and_then_without_the_registry(tmp_path: Path, store: ImageStore) -> None:
    with running_registry(tmp_path / "registry") as registry:
        registry.push("app", "1", INDEX)
        text = f"{registry.address}/app@{INDEX.digest}"
        done = await pulled(store, text)
    assert (done.digest, done.source) == (IMAGE.digest, INDEX.digest)
    assert store.find(text).digest == IMAGE.digest
    again = await pulled(store, text)
    assert again.downloaded_bytes == 0
    with pytest.raises(RegistryError, match="can't be reached: Connection refused") as caught:
        await pulled(store, f"{registry.address}/app:1")
    assert "proxy" in str(caught.value.hint)


@pytest.mark.parametrize(("tag", "source"), [("multi", INDEX), ("nested", NESTED)])
async def test_of_an_index_the_one_for_the_machine(
    registry: Registry, store: ImageStore, tag: str, source: MadeImage
) -> None:
    done = await pulled(store, f"{registry.address}/team/app:{tag}")
    assert (done.digest, done.source, done.platform) == (IMAGE.digest, source.digest, "linux/amd64")
    require_whole(store, IMAGE)
    for digest in ARM.layers:
        assert not store.has_blob(digest)


async def test_for_another_machine(registry: Registry, store: ImageStore) -> None:
    done = await pulled(store, f"{registry.address}/team/app:multi", machine="arm64")
    assert done.digest == ARM.digest
    with pytest.raises(ImageInvalidError, match="not for linux/riscv64; it is for linux/amd64"):
        await pulled(store, f"{registry.address}/team/app:multi", machine="riscv64")
    with pytest.raises(ImageInvalidError, match="for linux/arm64, not for linux/amd64"):
        await pulled(store, f"{registry.address}/team/app:arm")


async def test_a_layer_is_fetched_once_for_all_images(
    registry: Registry, store: ImageStore
) -> None:
    await pulled(store, f"{registry.address}/team/app:1.0")
    other = make_image([BIG, make_layer({"more": b"x"})])
    registry.push("team/other", "1", other)
    done = await pulled(store, f"{registry.address}/team/other:1")
    assert done.layers_present == 1
    assert done.downloaded_bytes == len(other.blobs[other.layers[1]])


async def test_a_tag_that_has_moved(registry: Registry, store: ImageStore) -> None:
    registry.push("moving", "latest", ARM)
    await pulled(store, f"{registry.address}/moving", machine="arm64")
    registry.push("moving", "latest", IMAGE)
    done = await pulled(store, f"{registry.address}/moving")
    assert store.find(f"{registry.address}/moving").digest == done.digest == IMAGE.digest


@pytest.mark.parametrize("name", ["team/app:none", "nobody/nothing:1"])
async def test_what_is_not_there(registry: Registry, store: ImageStore, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"has no image {registry.address}/{name}") as caught:
        await pulled(store, f"{registry.address}/{name}")
    assert "check name and tag" in str(caught.value.hint)
    assert store.names() == []


async def test_names_of_this_machine_are_in_no_registry(store: ImageStore) -> None:
    with pytest.raises(NotFoundError, match="built or loaded here"):
        await pulled(store, "localhost/app")


async def test_progress(registry: Registry, store: ImageStore) -> None:
    events: list[PullProgress] = []
    overall = Overall()

    def report(event: PullProgress) -> None:
        events.append(event)
        overall.add(event)

    reference = parse_reference(f"{registry.address}/team/app:1.0")
    platform = Platform(architecture="amd64", os="linux")
    await pull(store, reference, settings=QUICK, platform=platform, progress=report)
    assert [(event.layer, event.state) for event in events[:2]] == [
        (layer, "waiting") for layer in IMAGE.layers
    ]
    assert [event.state for event in overall.layers] == ["fetched", "fetched"]
    assert overall.fetched == overall.to_fetch == sum(event.total for event in overall.layers)
    events.clear()
    await pull(store, reference, settings=QUICK, platform=platform, progress=report)
    assert [event.state for event in events] == ["present", "present"]


# -- logins --------------------------------------------------------------------------------------


def write_login(home: Path, address: str, password: str) -> None:
    pair = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {address: {"auth": pair}}}))


async def test_with_a_login(closed_registry: Registry, store: ImageStore, home: Path) -> None:
    write_login(home, closed_registry.address, PASSWORD)
    assert (await pulled(store, f"{closed_registry.address}/private:1")).digest == IMAGE.digest
    require_whole(store, IMAGE)


async def test_without_a_login(closed_registry: Registry, store: ImageStore) -> None:
    with pytest.raises(RegistryDeniedError, match="only to those it knows") as caught:
        await pulled(store, f"{closed_registry.address}/private:1")
    assert "docker login" in str(caught.value.hint)
    assert caught.value.details["status"] == 401


async def test_with_a_wrong_login(closed_registry: Registry, store: ImageStore, home: Path) -> None:
    write_login(home, closed_registry.address, "wrong password")
    with pytest.raises(RegistryDeniedError) as caught:
        await pulled(store, f"{closed_registry.address}/private:1")
    assert "the login for it is wrong" in str(caught.value.hint)
    assert "wrong password" not in str(caught.value.to_dict())


# -- mirrors -------------------------------------------------------------------------------------


async def test_a_mirror_stands_in(registry: Registry, store: ImageStore) -> None:
    """What stands behind the mirror's host comes before the name."""
    registry.push("hub/library/debian", "12", IMAGE)
    settings = RegistrySettings(
        mirrors={"docker.io": ("http://127.0.0.1:9", f"http://{registry.address}/hub")},
        pace=QUICK.pace,
    )
    done = await pulled(store, "debian:12", settings)
    assert (done.digest, done.registry) == (IMAGE.digest, registry.address)
    assert store.find("debian:12").names == ("docker.io/library/debian:12",)


async def test_what_a_mirror_lacks_comes_from_the_registry(
    registry: Registry, store: ImageStore, tmp_path: Path
) -> None:
    with running_registry(tmp_path / "mirror") as mirror:
        mirror.push("team/app", "other", IMAGE)
        settings = RegistrySettings(
            mirrors={registry.address: (f"http://{mirror.address}",)}, pace=QUICK.pace
        )
        done = await pulled(store, f"{registry.address}/team/app:1.0", settings)
        assert (done.digest, done.registry) == (IMAGE.digest, registry.address)
        assert (await pulled(store, f"{registry.address}/team/app:other", settings)).registry == (
            mirror.address
        )


async def test_mirrors_of_the_users_file(
    registry: Registry, store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to hand them on."""
    registry.push("library/app", "1", IMAGE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "agentkernel" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[images.mirrors]\n"docker.io" = "http://{registry.address}"\n')
    platform = Platform(architecture="amd64", os="linux")
    done = await pull(store, parse_reference("app:1"), platform=platform)
    assert (done.registry, done.name) == (registry.address, "docker.io/library/app:1")


async def test_it_has_its_name_when_it_is_prepared(registry: Registry, store: ImageStore) -> None:
    reference = parse_reference(f"{registry.address}/team/app:1.0")
    platform = Platform(architecture="amd64", os="linux")

    async def fail(digest: str) -> None:
        assert store.image(digest).names == ()
        raise ImageInvalidError("a layer is damaged")

    async def prepare(digest: str) -> None:
        prepared.append(digest)

    prepared: list[str] = []
    with pytest.raises(ImageInvalidError, match="a layer is damaged"):
        await pull(store, reference, platform=platform, settings=QUICK, prepare=fail)
    assert store.names() == []
    await pull(store, reference, platform=platform, settings=QUICK, prepare=prepare)
    assert prepared == [IMAGE.digest]
    assert [name.name for name in store.names()] == [str(reference)]
