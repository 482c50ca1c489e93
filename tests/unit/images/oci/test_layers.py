"""Layers of stored images: unpacked once, complete or absent; a worker of the test's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from agentkernel.conformance.images import store_image, tar_of
from agentkernel.errors import ImageInvalidError, NotFoundError
from agentkernel.images.accounts import ROOT
from agentkernel.images.cache import layers_dir, prune, remove_tree
from agentkernel.images.model import IdKind, IdView, RootFilesystem
from agentkernel.images.oci.layers import ensure_layers, stored_layers
from agentkernel.images.oci.rootfs import (
    APT_CONF,
    UnpackedImage,
    pin,
    resolve_oci,
    unpack_image,
)
from agentkernel.images.oci.store import ImageStore
from agentkernel.images.oci.work import LAYER_LIMITS, Count, LayerLimits, Packed, Unpacked


class Worker:
    """Writes one file for a layer. `wanted`: how many must be at work before one goes on."""

    def __init__(self, wanted: int = 1) -> None:
        self.unpacked: list[str] = []
        self.removed: list[str] = []
        self.fails = False
        self._together = threading.Barrier(wanted)

    def layer_name(self, diff_id: str) -> str:
        return f"test-{diff_id.removeprefix('sha256:')}"

    def unpack(
        self,
        blob: str,
        diff_id: str,
        target: str,
        *,
        limits: LayerLimits = LAYER_LIMITS,
        progress: Count | None = None,
    ) -> Unpacked:
        self._together.wait(20)
        self.unpacked.append(diff_id)
        Path(target, "bin").mkdir()
        Path(target, "bin/file").write_text(diff_id)
        if self.fails:
            raise ImageInvalidError("no")
        return Unpacked(1, 1)

    def pack(self, source: str, output: BinaryIO, *, exclude: Sequence[str] = ()) -> Packed:
        raise AssertionError("nobody packs here")

    def remove(self, path: str) -> None:
        self.removed.append(path)
        remove_tree(path)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    store = ImageStore(tmp_path / "images")
    store_image(store, "app", [tar_of({"a": b"1"}), tar_of({"b": b"2"})], {"User": "app"})
    return store


def made(store: ImageStore) -> list[str]:
    names = os.listdir(layers_dir(store.directory))
    return sorted(name for name in names if not name.endswith(".used"))


def test_layers_are_unpacked_once_two_at_a_time(store: ImageStore) -> None:
    worker, told = Worker(wanted=2), list[str]()
    image = store.find("app")
    paths = ensure_layers(store, image, worker, told.append)
    assert [Path(path, "bin/file").read_text() for path in paths] == [
        *reversed(image.config.rootfs.diff_ids)
    ]
    assert told == ["unpacking 2 layers of docker.io/library/app:latest"]
    assert ensure_layers(store, image, worker, told.append) == paths
    assert len(worker.unpacked) == 2
    assert len(told) == 1


def test_a_layer_that_is_refused_is_not_there(store: ImageStore) -> None:
    worker = Worker()
    worker.fails = True
    with pytest.raises(ImageInvalidError):
        ensure_layers(store, store.find("app"), worker)
    assert made(store) == []
    assert worker.removed, "its files may be others' than ours: the worker removes them"
    worker.fails = False
    assert len(ensure_layers(store, store.find("app"), worker)) == 2


def test_a_layer_without_its_blob_says_what_to_do(store: ImageStore) -> None:
    image = store.find("app")
    os.unlink(store.blob_path(image.manifest.layers[0].digest))
    with pytest.raises(ImageInvalidError, match="missing") as caught:
        ensure_layers(store, image, Worker())
    assert caught.value.hint == "pull it again: agentkernel image pull docker.io/library/app:latest"


def test_pruning_keeps_what_images_and_sandboxes_need(store: ImageStore) -> None:
    worker = Worker()
    kept = set(ensure_layers(store, store.find("app"), worker))
    other = store_image(store, "other", [tar_of({"c": b"3"})], {})
    of_other = set(ensure_layers(store, store.find("other"), worker))
    store.untag("docker.io/library/other:latest")
    assert stored_layers(store, worker, set()) == kept
    assert stored_layers(store, worker, {other}) == kept | of_other
    in_use = stored_layers(store, worker, set())
    removed = prune(store.directory, in_use, keep_unused_s=0, remove=worker.remove)
    assert set(removed) == of_other
    assert all(os.path.isdir(path) for path in kept)
    assert not any(os.path.exists(path) for path in of_other)
    assert not [name for name in made(store) if name.startswith(".tmp")]


def test_a_sandbox_goes_on_with_its_image_when_the_tag_is_gone(store: ImageStore) -> None:
    pinned = pin("app", store.find("app"))
    assert pinned.startswith("docker.io/library/app:latest@sha256:")
    before = unpack_image(pinned, store.directory, Worker())
    store_image(store, "app", [tar_of({"new": b""})], {})
    assert unpack_image(pinned, store.directory, Worker()) == before
    store.untag("docker.io/library/app:latest")
    assert unpack_image(pinned, store.directory, Worker()) == before
    with pytest.raises(NotFoundError) as caught:
        unpack_image("app", store.directory, Worker())
    assert caught.value.hint == "fetch it: agentkernel image pull app"


def test_an_image_that_was_found_by_its_id_is_pinned_by_its_name(store: ImageStore) -> None:
    image = store.find("app")
    for text in (image.id, image.id[7:20], image.digest, f"app@{image.digest}"):
        assert store.find(pin(text, store.find(text))).digest == image.digest, text


def resolve(
    store: ImageStore, kind: IdKind, **config: object
) -> tuple[RootFilesystem, UnpackedImage]:
    store_image(store, "x", [tar_of({"usr/bin/apt-get": b""})], config)
    worker = Worker()
    image = unpack_image("x", store.directory, worker)
    (Path(image.layers[0]) / "usr/bin").mkdir(parents=True, exist_ok=True)
    (Path(image.layers[0]) / "usr/bin/apt-get").touch()
    root = resolve_oci(image, store.directory, IdView(kind, 0, os.getuid()), ROOT)
    return root, image


@pytest.mark.parametrize("kind", ["single", "subuid"])
def test_apt_is_told_of_one_id(store: ImageStore, kind: IdKind) -> None:
    root, image = resolve(store, kind)
    lowers = root.stacks[0].lowers
    told = [path for path in lowers if os.path.exists(f"{path}/{APT_CONF}")]
    assert bool(told) == (kind == "single")
    assert [path for path in lowers if path in image.layers]


def test_what_the_config_says(store: ImageStore) -> None:
    root, _ = resolve(
        store,
        "subuid",
        Env=["PATH=/own", "A=b=c", "nothing"],
        WorkingDir="srv/../app",
        Entrypoint=["/e"],
        Cmd=["a", "b"],
    )
    assert root.environment["PATH"] == "/own"
    assert root.environment["A"] == "b=c"
    assert root.environment["HOME"] == "/root"
    said = (root.cwd, root.entrypoint, root.cmd, root.kind)
    assert said == ("/app", ("/e",), ("a", "b"), "oci")


def test_what_the_config_leaves_out(store: ImageStore) -> None:
    root, _ = resolve(store, "subuid")
    assert "/usr/bin" in root.environment["PATH"].split(":")
    assert (root.cwd, root.entrypoint, root.cmd) == ("/", (), ())


@pytest.mark.parametrize("config", [{"WorkingDir": "/a\0b"}, {"Cmd": ["a\0"]}])
def test_a_config_with_a_nul_is_refused(store: ImageStore, config: dict[str, object]) -> None:
    with pytest.raises(ImageInvalidError):
        resolve(store, "subuid", **config)
