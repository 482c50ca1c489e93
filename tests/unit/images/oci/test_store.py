"""The store of images: a blob that is there is whole, a name leads to what it was given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentkernel.errors import (
    ConflictError,
    ImageInvalidError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
)
from agentkernel.images.oci.store import ImageStore, digest_of
from agentkernel.space import set_reserve


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def add(store: ImageStore, layer: bytes, name: str | None = None, source: str = "") -> str:
    """An image of one layer, which nobody ever unpacks here."""
    blob = store.put_document(layer)
    config = store.put_document(
        json.dumps(
            {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [blob]}}
        ).encode()
    )
    described = [
        {"mediaType": "x", "digest": digest, "size": store.blob_path(digest).stat().st_size}
        for digest in (config, blob)
    ]
    manifest = {"schemaVersion": 2, "config": described[0], "layers": described[1:]}
    digest = store.put_document(json.dumps(manifest).encode())
    if name is not None:
        store.tag(name, digest, source=source)
    return digest


def test_an_image_is_found_by_everything_that_names_it(store: ImageStore) -> None:
    index = "sha256:" + "12" * 32
    digest = add(store, b"layer", "docker.io/library/app:latest", source=index)
    add(store, b"other", "docker.io/library/other:latest")
    image = store.find("app")
    assert image.digest == digest
    assert image.names == ("docker.io/library/app:latest",)
    assert image.size == len(b"layer")
    for text in (
        *("app:latest", digest, image.id, index, image.id.removeprefix("sha256:")[:12]),
        *(f"app@{digest}", f"app@{index}", f"docker.io/library/app:latest@{digest}"),
    ):
        assert store.find(text).digest == digest, text


@pytest.mark.parametrize(
    "text", ["app", "app:2", "sha256:" + "34" * 32, "abcdef", "a/b@sha256:" + "0" * 64]
)
def test_what_is_not_here_says_how_to_get_it(store: ImageStore, text: str) -> None:
    add(store, b"layer", "docker.io/library/one:1")
    with pytest.raises(NotFoundError) as raised:
        store.find(text)
    assert raised.value.hint is not None and "image pull" in raised.value.hint


def test_a_name_moves_and_the_digest_stays(store: ImageStore) -> None:
    first, second = add(store, b"1", "docker.io/library/app:1"), add(store, b"2")
    store.tag("docker.io/library/app:1", second)
    assert store.find("app:1").digest == second
    assert store.find(f"app@{first}").names == ()
    store.untag("docker.io/library/app:1")
    store.untag("docker.io/library/app:1")
    assert store.names() == []


def test_a_blob_of_another_digest_is_not_kept(store: ImageStore) -> None:
    wanted = digest_of(b"right")
    with store.new_blob() as blob:
        blob.write(b"wrong")
        with pytest.raises(ImageInvalidError, match="has the digest"):
            blob.keep(wanted)
    assert not store.has_blob(wanted)
    assert list((store.directory / "partial").iterdir()) == []


def test_what_was_fetched_is_gone_on_with_and_one_fetches_at_a_time(store: ImageStore) -> None:
    wanted = digest_of(b"0123456789")
    with store.partial_blob(wanted) as blob:
        assert blob is not None
        blob.write(b"01234")
        with store.partial_blob(wanted) as other:
            assert other is None
    with store.partial_blob(wanted) as blob:
        assert blob is not None
        assert blob.size() == 5

        os.lseek(blob.fd, 5, os.SEEK_SET)
        blob.write(b"56789")
        blob.keep(wanted)
    assert store.blob_path(wanted).read_bytes() == b"0123456789"


def test_nothing_is_written_to_a_disk_that_is_nearly_full(store: ImageStore) -> None:
    set_reserve(1 << 60)
    try:
        with pytest.raises(ResourceExhaustedError, match="nearly full"), store.new_blob():
            pytest.fail("there is no room")
    finally:
        set_reserve(None)
    assert not list(store.directory.rglob(".new-*"))


def test_a_damaged_document_is_not_read(store: ImageStore) -> None:
    digest = add(store, b"layer", "docker.io/library/app:latest")
    store.blob_path(digest).write_bytes(b"{}")
    with pytest.raises(ImageInvalidError, match="damaged"):
        store.find("app")
    assert store.images() == []


def test_only_what_nothing_needs_is_unused(store: ImageStore) -> None:
    kept, used, left = add(store, b"1", "docker.io/library/a:1"), add(store, b"2"), add(store, b"3")
    loose = store.put_document(b"nobody's")
    with store.removing():
        unused = store.unused_blobs(in_use=[used])
        assert loose in unused and left in unused and store.image(left).id in unused
        assert len(unused) == 4
        store.remove_blobs(unused)
    assert store.image(kept) and store.image(used)
    with pytest.raises(ImageInvalidError, match="not complete"):
        store.image(left)


def test_nothing_is_removed_while_something_is_added(store: ImageStore) -> None:
    with store.adding(), store.adding(), pytest.raises(ConflictError), store.removing():
        pass
    with store.removing():
        pass


@pytest.mark.parametrize(
    "digest", ["", "sha256:..", "sha256:" + "A" * 64, "../x", "sha256:" + "a" * 63]
)
def test_only_a_digest_is_a_file(store: ImageStore, digest: str) -> None:
    with pytest.raises(InvalidInputError):
        store.blob_path(digest)
