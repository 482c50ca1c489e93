"""kernel.images on a real disk: what is added is whole, what is used stays, what is not goes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentkernel.errors import ConflictError, ImageInvalidError, InvalidInputError, NotFoundError
from agentkernel.images import cache
from agentkernel.images.oci.model import ContainerConfig
from agentkernel.images.oci.progress import PullProgress
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec

from ..unit.images.archives.making import (
    NAME,
    Image,
    digest,
    docker_archive,
    layout,
    named,
    oci_archive,
    tar,
)

SMALL = "small:1"


@pytest.fixture
async def kernel(tmp_path: Path) -> AsyncIterator[Kernel]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    async with Kernel(state) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def pieces(archive: bytes, size: int = 4096) -> AsyncIterator[bytes]:
    for at in range(0, len(archive), size):
        yield archive[at : at + size]


async def saved(kernel: Kernel, *names: str) -> bytes:
    async with kernel.images.save(names) as archive:
        return b"".join([piece async for piece in archive])


def blobs(kernel: Kernel) -> set[str]:
    directory = kernel.images.store.directory / "blobs" / "sha256"
    return {f"sha256:{path.name}" for path in directory.glob("*")}


def layers(kernel: Kernel) -> list[str]:
    directory = cache.layers_dir(kernel.images.store.directory)
    return [name for name in os.listdir(directory) if name.startswith("oci")]


async def test_load_look_save_remove(kernel: Kernel) -> None:
    image = Image(created="2026-01-02T03:04:05Z")
    told: list[PullProgress] = []
    (info,) = await kernel.images.load(pieces(oci_archive(image)), progress=told.append)
    assert (info.names, info.digest) == ([SMALL], image.digest)
    assert {word.layer for word in told} == {digest(layer) for layer in image.layers}
    assert [word.state for word in told][-1] == "ready"
    (listed,) = await kernel.images.list()
    assert listed == info and info.created.startswith("2026") and info.sandboxes == []
    for said in (SMALL, "docker.io/library/small:1", image.digest, info.id, info.id[7:19]):
        detail = await kernel.images.inspect(said)
        assert detail.digest == image.digest and detail.config.cmd == ["sh"]
        assert all(layer.unpacked for layer in detail.layers) and detail.disk_bytes > 0
    archive = await saved(kernel, SMALL)
    gone = await kernel.images.remove(SMALL)
    assert gone.untagged == [SMALL] and gone.deleted == [image.digest] and gone.freed_bytes > 0
    assert blobs(kernel) == set() and layers(kernel) == []
    (again,) = await kernel.images.load(pieces(archive))
    assert (again.names, again.digest) == ([SMALL], image.digest)
    kinds = [event.kind for event in (await kernel.events(0, limit=100)).records]
    assert kinds == ["image.loaded", "image.removed", "image.loaded"]


async def test_several_names_and_shared_layers(kernel: Kernel) -> None:
    one, two = Image(b"same", b"one"), Image(b"same", b"two")
    archive = tar(layout(named(one, "one:1"), named(two, "two:1")) | one.blobs() | two.blobs())
    await kernel.images.load(pieces(archive))
    assert (await kernel.images.tag("one:1", "quay.io/me/one")).names == [
        "one:1", "quay.io/me/one:latest",
    ]  # fmt: skip
    with pytest.raises(ConflictError, match="2 names: one:1, quay.io/me/one:latest"):
        await kernel.images.remove(one.digest)
    assert (await kernel.images.remove("one:1")).deleted == []
    gone = await kernel.images.remove("quay.io/me/one:latest")
    assert gone.deleted == [one.digest]
    # What the other shares is still there, whole.
    assert digest(one.layers[0]) in blobs(kernel) and digest(one.layers[1]) not in blobs(kernel)
    assert all(layer.unpacked for layer in (await kernel.images.inspect("two:1")).layers)
    with pytest.raises(NotFoundError):
        await kernel.images.inspect("one:1")
    with pytest.raises(InvalidInputError, match="one name is given"):
        await kernel.images.load(pieces(archive), name="both:1")


async def test_an_image_without_a_name_gets_one(kernel: Kernel) -> None:
    image = Image()
    (info,) = await kernel.images.load(pieces(oci_archive(image, None)))
    assert info.names == [f"localhost/unnamed:{image.digest[7:19]}"]
    (info,) = await kernel.images.load(pieces(oci_archive(image, None)), name="mine:2")
    assert sorted(info.names) == [f"localhost/unnamed:{image.digest[7:19]}", "mine:2"]
    with pytest.raises(InvalidInputError):
        await kernel.images.load(pieces(oci_archive(image)), name="host")


async def test_what_a_sandbox_was_made_from_stays(kernel: Kernel) -> None:
    image = Image()
    await kernel.images.load(pieces(oci_archive(image)))
    made = await kernel.create(SandboxSpec(image=SMALL, ephemeral=False), name="box")
    assert made.blueprint["image"] == f"{NAME}@{image.digest}"
    before = blobs(kernel), sorted(layers(kernel))
    with pytest.raises(ConflictError, match="made from it: box") as caught:
        await kernel.images.remove(SMALL)
    assert caught.value.details == {"sandboxes": ["box"]}
    assert (await kernel.images.list())[0].sandboxes == ["box"]
    gone = await kernel.images.remove(SMALL, force=True)
    assert (gone.untagged, gone.deleted) == ([SMALL], [])
    pruned = await kernel.images.prune(all=True)
    assert (pruned.blobs, pruned.layers, pruned.untagged) == (0, 0, [])
    assert (blobs(kernel), sorted(layers(kernel))) == before
    # It needs no name to start again.
    await kernel.stop("box", grace_seconds=0)
    await kernel.start("box")
    (nameless,) = await kernel.images.list()
    assert (nameless.names, nameless.sandboxes) == ([], ["box"])
    # A name that comes back means another image: the sandbox stays what it is.
    other = Image(b"other")
    await kernel.images.load(pieces(oci_archive(other)))
    await kernel.stop("box", grace_seconds=0)
    await kernel.start("box")
    async with kernel.files("box") as files:
        assert await files.read("/file0") == b"one"
    await kernel.remove("box")
    pruned = await kernel.images.prune()
    assert pruned.blobs == len(before[0]) and pruned.freed_bytes > 0
    assert blobs(kernel) == {digest(data) for data in other.blobs().values()}


async def test_an_image_that_is_about_to_be_used_stays(kernel: Kernel) -> None:
    await kernel.images.load(pieces(oci_archive(Image())))
    pinned = await kernel.images.ready(SMALL, pull="never")
    assert (await kernel.images.remove(SMALL)).deleted == []
    assert (await kernel.images.prune(all=True)).blobs == 0
    kernel.images.release(pinned)
    assert (await kernel.images.prune()).blobs == 4
    with pytest.raises(NotFoundError) as caught:
        await kernel.images.ready(SMALL, pull="never")
    assert caught.value.hint == "fetch it: agentkernel image pull small:1"
    assert await kernel.images.ready("host") == "host"
    assert await kernel.images.ready("/some/where") == "/some/where"


async def test_nothing_is_removed_while_something_is_added(kernel: Kernel) -> None:
    image, other = Image(), Image(b"other")
    await kernel.images.load(pieces(oci_archive(other, "other:1")))
    halfway, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        archive = oci_archive(image)
        yield archive[:5000]
        halfway.set()
        await go_on.wait()
        yield archive[5000:]

    loading = asyncio.create_task(kernel.images.load(slow()))
    await halfway.wait()
    with pytest.raises(ConflictError, match="being fetched"):
        await kernel.images.prune()
    gone = await kernel.images.remove("other:1")
    assert (gone.untagged, gone.deleted) == (["other:1"], [])
    go_on.set()
    await loading
    assert (await kernel.images.prune()).blobs == 3
    assert [image.names for image in await kernel.images.list()] == [[SMALL]]


async def test_a_load_that_breaks_off_leaves_nothing_that_is_used(kernel: Kernel) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield oci_archive(Image())[:6000]
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await kernel.images.load(broken())
    assert await kernel.images.list() == [] and blobs(kernel) == set()
    assert list((kernel.images.store.directory / "partial").iterdir()) == []


async def test_a_layer_that_lies_about_its_content_gives_no_image(kernel: Kernel) -> None:
    """Its blob is what the manifest says; what is in it is not what the config says."""
    image = Image()
    other = digest(b"something else")
    image.config = image.config.replace(digest(image.tars[0]).encode(), other.encode())
    lying = docker_archive(image)
    with pytest.raises(ImageInvalidError, match="digest"):
        await kernel.images.load(pieces(lying))
    assert await kernel.images.list() == [] and blobs(kernel) == set()
    # The layer that was right may stay, as long as nobody prunes.
    await kernel.images.prune()
    assert layers(kernel) == []


async def test_a_directory_becomes_an_image(kernel: Kernel, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "word").write_text("here")
    (root / "out").symlink_to("/etc/hostname")
    os.link(root / "etc" / "word", root / "same")
    os.mkfifo(root / "fifo")
    config = ContainerConfig(cmd=["/etc/word"], working_dir="/etc", labels={"a": "b"})
    info = await kernel.images.import_directory(str(root), "imported:1", config=config)
    assert info.names == ["imported:1"]
    detail = await kernel.images.inspect("imported:1")
    assert detail.config.cmd == ["/etc/word"] and detail.config.labels == {"a": "b"}
    assert detail.config.env[0].startswith("PATH=") and len(detail.layers) == 1
    await kernel.create(SandboxSpec(image="imported:1"), name="box")
    async with kernel.files("box") as files:
        assert await files.read("/etc/word") == await files.read("/same") == b"here"
        found = await files.stat("/out", follow=False)
        assert found.target == "/etc/hostname"
        assert (await files.stat("/etc/word")).uid == 0
    for wrong in ("relative", str(tmp_path / "absent"), str(kernel.state_dir), "/"):
        with pytest.raises(InvalidInputError):
            await kernel.images.import_directory(wrong, "wrong:1")


async def test_a_directory_that_changes_below_is_an_image_all_the_same(
    kernel: Kernel, tmp_path: Path
) -> None:
    """What was imported is a copy."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "word").write_text("before")
    await kernel.images.import_directory(str(root), "copy:1")
    (root / "word").write_text("after!")
    await kernel.create(SandboxSpec(image="copy:1"), name="box")
    async with kernel.files("box") as files:
        assert await files.read("/word") == b"before"


# -- other tools -------------------------------------------------------------------------------


def tool(*words: str, cwd: Path) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, cwd=cwd, timeout=55, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def load_file(kernel: Kernel, path: Path) -> list[str]:
    content = await asyncio.to_thread(path.read_bytes)
    found = await kernel.images.load(pieces(content, 1 << 20))
    return [image.digest for image in found]


async def test_what_skopeo_writes_is_loaded(kernel: Kernel, tmp_path: Path) -> None:
    image = Image()
    await kernel.images.load(pieces(oci_archive(image)))
    (tmp_path / "first.tar").write_bytes(await saved(kernel, SMALL))
    await kernel.images.remove(SMALL)
    source = f"oci-archive:first.tar:{NAME}"
    for target in ("oci-archive:oci.tar:small:1", "docker-archive:docker.tar:small:1"):
        tool("skopeo", "copy", "--insecure-policy", source, target, cwd=tmp_path)
    assert await load_file(kernel, tmp_path / "oci.tar") == [image.digest]
    await kernel.images.remove(SMALL)
    (loaded,) = await load_file(kernel, tmp_path / "docker.tar")
    detail = await kernel.images.inspect(SMALL)
    assert detail.digest == loaded and detail.id == digest(image.config)
    assert [layer.diff_id for layer in detail.layers] == [digest(layer) for layer in image.tars]


async def test_what_is_saved_is_read_by_skopeo_and_podman(kernel: Kernel, tmp_path: Path) -> None:
    image = Image()
    await kernel.images.load(pieces(oci_archive(image)))
    (tmp_path / "saved.tar").write_bytes(await saved(kernel, SMALL))
    for source in (f"oci-archive:saved.tar:{NAME}", "docker-archive:saved.tar:small:1"):
        tool("skopeo", "copy", "--insecure-policy", source, "dir:out", cwd=tmp_path)
        config = next((tmp_path / "out").glob(digest(image.config)[7:]))
        assert config.read_bytes() == image.config
        shutil.rmtree(tmp_path / "out")
    if os.getuid() != 0:
        pytest.skip("podman without root needs a session of its own")
    place = ("--root", "storage", "--runroot", "run", "--storage-driver", "vfs")
    tool("podman", *place, "load", "-i", "saved.tar", cwd=tmp_path)
    listed = tool("podman", *place, "images", "--format", "{{.Id}} {{.Names}}", cwd=tmp_path)
    assert digest(image.config)[7:19] in listed and "library/small:1" in listed


async def test_a_layout_of_umoci_is_loaded(kernel: Kernel, tmp_path: Path) -> None:
    tool("umoci", "init", "--layout", "layout", cwd=tmp_path)
    tool("umoci", "new", "--image", "layout:app", cwd=tmp_path)
    tool("umoci", "config", "--image", "layout:app", "--config.cmd", "hello", cwd=tmp_path)
    from agentkernel.client.image_files import archive_pieces

    archive = b"".join(archive_pieces(tmp_path / "layout"))
    (info,) = await kernel.images.load(pieces(archive), name="app:1")
    assert (await kernel.images.inspect("app:1")).config.cmd == ["hello"]
    assert info.size == 0
