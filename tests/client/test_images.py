"""The SDK about images: archives of this machine in and out, and sandboxes made from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentkernel import AsyncHost, AsyncSandbox, Host, Sandbox, errors
from agentkernel.client.results import LayerProgress

from ..unit.images.archives.making import Image, digest, oci_archive

pytestmark = pytest.mark.usefixtures("daemon_dir")
IMAGE = Image(b"sdk")
NAME = "small:sdk"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "image.tar"
    path.write_bytes(oci_archive(IMAGE, NAME))
    return path


@pytest.fixture
def loaded(archive: Path) -> Iterator[str]:
    Host().images.load(archive)
    yield NAME
    Host().images.prune(all=True)


def test_loaded_shown_saved_removed(archive: Path, tmp_path: Path) -> None:
    images = Host().images
    told: list[LayerProgress] = []
    (info,) = images.load(archive, progress=told.append)
    assert (info.names, info.digest) == ([NAME], IMAGE.digest)
    assert told[-1].state == "ready" and told[-1].layer == digest(IMAGE.layers[0])
    assert images.list() == [info]
    assert images.inspect(info.id)["layers"][0]["unpacked"] is True
    assert images.tag(NAME, "other:1").names == ["other:1", NAME]
    saved = tmp_path / "saved.tar"
    assert images.save(saved, NAME) == saved.stat().st_size
    assert b"".join(images.save_stream(NAME)) == saved.read_bytes()
    assert images.remove(NAME)["deleted"] == []
    assert images.remove("other:1")["deleted"] == [IMAGE.digest]
    (again,) = images.load(iter([saved.read_bytes()]), name="again:1")
    assert (again.names, again.digest) == (["again:1"], IMAGE.digest)
    assert images.prune(all=True)["untagged"] == ["again:1"]
    with pytest.raises(errors.NotFoundError):
        images.save(tmp_path / "none.tar", NAME)
    assert not list(tmp_path.glob("none*"))


def test_a_layout_on_disk_and_a_directory_that_is_none(tmp_path: Path) -> None:
    import io
    import tarfile

    layout = tmp_path / "layout"
    with tarfile.open(fileobj=io.BytesIO(oci_archive(IMAGE, NAME))) as archive:
        for member in archive:
            path = layout / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            path.write_bytes(content.read())
    (info,) = Host().images.load(layout)
    assert info.digest == IMAGE.digest
    Host().images.remove(NAME)
    with pytest.raises(errors.InvalidInputError, match="no OCI layout"):
        Host().images.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Host().images.load(tmp_path / "absent")


def test_a_sandbox_of_an_image(loaded: str) -> None:
    sentences: list[str] = []
    with Sandbox.create(image=loaded, pull="never", progress=sentences.append) as sandbox:
        assert sandbox.files.read_bytes("/file0") == b"sdk"
        with pytest.raises(errors.ConflictError, match=sandbox.id):
            Host().images.remove(loaded)
    with pytest.raises(errors.NotFoundError):
        Sandbox.create(image="absent:1", pull="never", progress=sentences.append)
    with pytest.raises(errors.NotFoundError):
        Sandbox.create(image="absent:1", pull="never")
    assert sentences == []


def test_an_import(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "word").write_text("here")
    info = Host().images.import_directory(root, "imported:sdk", env={"A": "b"}, cmd=["x"])
    config = Host().images.inspect("imported:sdk")["config"]
    assert config["cmd"] == ["x"] and "A=b" in config["env"]
    assert Host().images.remove(info.digest)["deleted"] == [info.digest]


async def test_the_same_with_asyncio(archive: Path, tmp_path: Path) -> None:
    images = AsyncHost().images
    content = oci_archive(IMAGE, NAME)

    async def pieces() -> AsyncIterator[bytes]:
        yield content[:1000]
        yield content[1000:]

    (info,) = await images.load(pieces())
    assert [image.names for image in await images.list()] == [info.names]
    async with await AsyncSandbox.create(image=NAME) as sandbox:
        assert await sandbox.files.read_bytes("/file0") == b"sdk"
    saved = b"".join([piece async for piece in images.save_stream(NAME)])
    await images.save(tmp_path / "out.tar", NAME)
    assert len(saved) > len(IMAGE.layers[0])
    with pytest.raises(errors.InvalidInputError):
        await images.load(archive.parent / "out.tar", name="host:../x")
    assert (await images.remove(NAME))["deleted"] == [IMAGE.digest]
