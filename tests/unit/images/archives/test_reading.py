"""Archives of images: every form that tools write is read, everything else is a typed refusal."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkernel import space
from agentkernel.errors import ImageInvalidError, ResourceExhaustedError
from agentkernel.images.oci.archives.decompressing import Decompressor
from agentkernel.images.oci.model import DOCKER_LIST, OCI_INDEX, OCI_MANIFEST
from agentkernel.images.oci.store import ImageStore

from .making import (
    NAME,
    Image,
    blob,
    descriptor,
    digest,
    docker_archive,
    layout,
    load,
    named,
    oci_archive,
    read,
    tar,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

IMAGE = Image()
PLAIN = Image(compress=False)


@pytest.mark.parametrize("piece", [1, 511, 512, 1 << 20])
def test_an_oci_layout_in_pieces_of_any_size(tmp_path: Path, piece: int) -> None:
    (image,) = read(tmp_path, oci_archive(IMAGE), piece=piece)
    assert image.digest == IMAGE.digest and image.names == [NAME]
    assert set(image.layers) == {digest(layer) for layer in IMAGE.layers}


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_a_compressed_archive(tmp_path: Path, compress: Any) -> None:
    (image,) = read(tmp_path, compress(oci_archive(IMAGE)))
    assert image.digest == IMAGE.digest


def test_gzip_in_several_members(tmp_path: Path) -> None:
    whole = oci_archive(IMAGE)
    (image,) = read(tmp_path, gzip.compress(whole[:3000]) + gzip.compress(whole[3000:]))
    assert image.digest == IMAGE.digest


def test_an_index_for_several_machines(tmp_path: Path) -> None:
    other = Image(b"other", architecture="other")
    platforms = [
        descriptor(OCI_MANIFEST, other.manifest, platform={"os": "linux", "architecture": "other"}),
        descriptor(
            OCI_MANIFEST,
            IMAGE.manifest,
            platform={"os": "linux", "architecture": json.loads(IMAGE.config)["architecture"]},
        ),
        descriptor(OCI_MANIFEST, b"{}", platform={"os": "unknown", "architecture": "unknown"}),
    ]
    index = json.dumps({"mediaType": OCI_INDEX, "manifests": platforms}).encode()
    notes = {"annotations": {"io.containerd.image.name": NAME}}
    # Of the others nothing is in the archive: it need not be.
    nested = layout(descriptor(OCI_INDEX, index, **notes)) | {blob(index): index}
    (image,) = read(tmp_path, tar(nested | IMAGE.blobs()))
    assert (image.digest, image.source, image.names) == (IMAGE.digest, digest(index), [NAME])
    flat = tar(layout(*platforms) | IMAGE.blobs())
    other_place = tmp_path / "flat"
    other_place.mkdir()
    (image,) = read(other_place, flat)
    assert image.digest == IMAGE.digest and image.names == []


def test_names_that_are_only_tags_are_none(tmp_path: Path) -> None:
    (image,) = read(tmp_path, oci_archive(IMAGE, "latest"))
    assert image.names == []


@pytest.mark.parametrize("image", [IMAGE, PLAIN], ids=["gzip", "plain"])
def test_what_docker_wrote_before_25(tmp_path: Path, image: Image) -> None:
    (found,) = read(tmp_path, docker_archive(image, ["small:1", "quay.io/o/small:2"]))
    assert found.names == [NAME, "quay.io/o/small:2"]
    assert list(found.layers) == [digest(layer) for layer in image.layers]
    kinds = {layer.media_type for layer in found.manifest.layers}
    assert kinds == {"application/vnd.oci.image.layer.v1.tar" + ("" if image is PLAIN else "+gzip")}


def test_layers_of_docker_that_are_links(tmp_path: Path) -> None:
    config = "config.json"
    entry = {"Config": config, "RepoTags": None, "Layers": ["a/layer.tar", "b/layer.tar"]}
    image = Image(b"same", b"same2", compress=False)
    files = {
        "layers/one.tar": image.layers[0],
        "layers/two.tar": image.layers[1],
        config: image.config,
        "manifest.json": json.dumps([entry]).encode(),
    }
    links = {"a/layer.tar": "../layers/one.tar", "b/layer.tar": "../b/other", "b/other": "../two"}
    links["two"] = "layers/two.tar"
    (found,) = read(tmp_path, tar(files, links))
    assert list(found.layers) == [digest(layer) for layer in image.layers] and found.names == []
    # A link out of the archive leads to nothing, also where the file is there on this machine.
    (tmp_path / "out").mkdir()
    for target in ("../../../../../../../etc/hostname", "/etc/hostname", "b/layer.tar"):
        with pytest.raises(ImageInvalidError, match="missing"):
            read(tmp_path / "out", tar(files, links | {"b/layer.tar": target}))
        for left in (tmp_path / "out").iterdir():
            left.unlink()


def test_an_archive_that_is_both(tmp_path: Path) -> None:
    """As docker writes it since 25: manifests of its own, and names in docker's document."""
    entry = {
        "Config": blob(IMAGE.config),
        "RepoTags": ["small:1"],
        "Layers": [blob(layer) for layer in IMAGE.layers],
    }
    files = layout(named(IMAGE, None)) | IMAGE.blobs()
    (image,) = read(tmp_path, tar(files | {"manifest.json": json.dumps([entry]).encode()}))
    assert image.digest == IMAGE.digest and image.names == [NAME]


def test_several_images_and_several_names(tmp_path: Path) -> None:
    other = Image(b"other")
    entries = [named(IMAGE), named(IMAGE, "small:2"), named(other, "other:1")]
    found = read(tmp_path, tar(layout(*entries) | IMAGE.blobs() | other.blobs()))
    assert [image.names for image in found] == [
        [NAME, "docker.io/library/small:2"],
        ["docker.io/library/other:1"],
    ]


def _without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: value for key, value in files.items() if key != name}


WHOLE = layout(named(IMAGE)) | IMAGE.blobs()
LIES = {
    "a layer is missing": (tar(_without(WHOLE, blob(IMAGE.layers[0]))), "missing"),
    "a config is missing": (tar(_without(WHOLE, blob(IMAGE.config))), "missing"),
    "a manifest is missing": (tar(_without(WHOLE, blob(IMAGE.manifest))), "missing"),
    "a layer is another": (tar(WHOLE | {blob(IMAGE.layers[0]): b"other"}), "has the digest"),
    "a config is another": (tar(WHOLE | {blob(IMAGE.config): b"{}"}), "has the digest"),
    "a size is wrong": (
        tar(layout({**named(IMAGE), "size": 1}) | IMAGE.blobs()),
        "another size",
    ),
    "nothing is in it": (tar({}), "neither"),
    "no image is in it": (tar(layout()), "no image"),
    "the index is no document": (tar(WHOLE | {"index.json": b"[1"}), "can't be read"),
    "a layout of the future": (
        tar(WHOLE | {"oci-layout": b'{"imageLayoutVersion": "2.0.0"}'}),
        "version 2.0.0",
    ),
    "docker's document is none": (tar({"manifest.json": b'{"Config": 1}'}), "can't be read"),
    "a plain layer is another": (
        docker_archive(PLAIN).replace(PLAIN.layers[0][512:520], b"00000000"),
        "has the digest",
    ),
    "a name is none": (docker_archive(IMAGE, ["../../etc"]), "names can't be used"),
    "a name twice": (tar(WHOLE, {"index.json": "other"}), "twice"),
    "a device": (b"device", "device"),
    "cut off": (oci_archive(IMAGE)[:-9000], "cut off"),
    "a compressed one cut off": (gzip.compress(oci_archive(IMAGE))[:-20], "middle"),
    "damaged compression": (gzip.compress(oci_archive(IMAGE))[:-8] + bytes(8), "damaged"),
    "xz": (b"\xfd7zXZ\0\0\0", "xz"),
    "text": (b"hello, this is no archive\n" * 40, "can't be read"),
    "empty": (b"", "cut off"),
}


@pytest.mark.parametrize("what", LIES)
def test_lies_are_refused(tmp_path: Path, what: str) -> None:
    archive, words = LIES[what]
    if what == "a device":
        block = bytearray(tar({"null": b""}))
        block[156:157] = b"3"
        total = sum(block[:148]) + sum(block[156:512]) + 8 * 32
        block[148:156] = b"%06o\0 " % total
        archive = bytes(block)
    store = ImageStore(tmp_path)
    with pytest.raises(ImageInvalidError, match=words):
        load(store, archive)
    assert store.names() == [] and list((tmp_path / "partial").iterdir()) == []
    assert not (tmp_path / "blobs").exists()


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    bomb = gzip.compress(tar({"index.json": bytes(64 << 20)}))
    assert len(bomb) < 100_000
    with pytest.raises(ImageInvalidError, match="more than 1048576 bytes"):
        read(tmp_path, bomb, limit_bytes=1 << 20)
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert written <= 1 << 20
    (tmp_path / "many").mkdir()
    with pytest.raises(ImageInvalidError, match="more than 10 files"):
        read(tmp_path / "many", tar({str(at): b"" for at in range(11)}), limit_files=10)


def test_a_large_document_is_no_document(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalidError, match="more than 4 MiB"):
        read(tmp_path, tar(WHOLE | {"index.json": bytes(5 << 20)}), piece=1 << 20)


def test_a_decompressor_gives_pieces(tmp_path: Path) -> None:
    for data in (gzip.compress(bytes(8 << 20)), zstd.compress(bytes(8 << 20))):
        decompressor = Decompressor()
        sizes = [len(piece) for piece in decompressor.feed(data)]
        assert sum(sizes) == 8 << 20 and max(sizes) <= 1 << 20


def test_a_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_chosen", 1 << 60)
    with pytest.raises(ResourceExhaustedError):
        read(tmp_path, oci_archive(IMAGE))


def test_what_no_document_names_is_not_kept(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    load(store, tar(WHOLE | {"blobs/sha256/" + "0" * 64: b"extra", "README": b"more"}))
    kept = {path.name for path in (tmp_path / "blobs" / "sha256").iterdir()}
    assert kept == {name.rpartition("/")[2] for name in IMAGE.blobs()}
    assert store.find("small:1").digest == IMAGE.digest
    assert store.find(IMAGE.digest).names == (NAME,)
    store.untag(NAME)
    assert store.find(IMAGE.digest).names == ()


def test_a_list_of_docker(tmp_path: Path) -> None:
    platform = {"os": "linux", "architecture": json.loads(IMAGE.config)["architecture"]}
    entry = descriptor(OCI_MANIFEST, IMAGE.manifest, platform=platform)
    index = json.dumps({"mediaType": DOCKER_LIST, "manifests": [entry]}).encode()
    files = layout(descriptor(DOCKER_LIST, index)) | {blob(index): index} | IMAGE.blobs()
    (image,) = read(tmp_path, tar(files))
    assert image.source == digest(index)
