"""What is saved is loaded again as the same, byte by byte."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.archives.writing import Format, Saved, write_images
from agentkernel.images.oci.store import ImageStore

from .making import NAME, Image, layout, load, named, oci_archive, tar


def saved(store: ImageStore, *names: str, format: Format = "oci") -> bytes:
    images = [Saved(store.find(name), (name,)) for name in names]
    return b"".join(write_images(store, images, format))


def test_round_trip(tmp_path: Path) -> None:
    first, second = ImageStore(tmp_path / "first"), ImageStore(tmp_path / "second")
    image, other = Image(), Image(b"one", b"other")
    entries = (named(image), named(other, "other:2"))
    load(first, tar(layout(*entries) | image.blobs() | other.blobs()))
    archive = saved(first, NAME, "docker.io/library/other:2")
    load(second, archive)
    assert [(entry.name, entry.digest) for entry in second.names()] == [
        (entry.name, entry.digest) for entry in first.names()
    ]
    blobs = [
        {path.name: path.read_bytes() for path in (root / "blobs/sha256").iterdir()}
        for root in (tmp_path / "first", tmp_path / "second")
    ]
    assert blobs[0] == blobs[1]
    assert saved(second, NAME, "docker.io/library/other:2") == archive


def test_docker_finds_its_own_document(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    image = Image()
    load(store, oci_archive(image))
    formats: dict[Format, bool] = {"oci": True, "docker": False}
    for format, there in formats.items():
        with tarfile.open(fileobj=io.BytesIO(saved(store, NAME, format=format))) as archive:
            names = archive.getnames()
            assert ("oci-layout" in names, "index.json" in names) == (there, there)
            document = archive.extractfile("manifest.json")
            assert document is not None
            (entry,) = json.loads(document.read())
        assert entry["RepoTags"] == ["small:1"]
        assert {entry["Config"], *entry["Layers"]} < set(names)
    # Without the layout the manifest is made anew, so its digest may be another.
    again = ImageStore(tmp_path / "again")
    (found,) = load(again, saved(store, NAME, format="docker"))
    assert [layer.digest for layer in found.manifest.layers] == [
        layer.digest for layer in store.find(NAME).manifest.layers
    ]


def test_what_is_missing_is_said_before_anything_is_written(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    image = Image()
    load(store, oci_archive(image))
    stored = store.find(NAME)
    store.blob_path(stored.manifest.layers[1].digest).unlink()
    with pytest.raises(ImageInvalidError, match="missing"):
        write_images(store, [Saved(stored, (NAME,))])
