"""Images as an archive, a piece at a time: an OCI layout that is one of `docker save` as well, so
that every tool takes it. The same images give the same bytes.

A blob that goes while the archive is written breaks it off: nobody takes that for a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.archives.documents import (
    CONTAINERD_NAME,
    DOCKER,
    INDEX,
    LAYOUT,
    LAYOUT_VERSION,
    REF_NAME,
    blob_name,
)
from agentkernel.images.oci.model import MANIFESTS, OCI_INDEX, OCI_MANIFEST
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.trees.entries import FileType, TreeEntry
from agentkernel.trees.tar_writer import BLOCK, TarWriter

# `docker`: without what makes it an OCI layout, for tools that stumble over that.
Format = Literal["oci", "docker"]
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class Saved:
    """An image of the archive, and which of its names it has there, complete."""

    image: StoredImage
    names: tuple[str, ...]


def write_images(
    store: ImageStore, images: Sequence[Saved], format: Format = "oci"
) -> Iterator[bytes]:
    """Raises ImageInvalidError where something of an image is missing, before the first piece if it
    is so then."""
    sizes = _sizes(store, images)
    return _archive(store, images, format, sizes)


def _sizes(store: ImageStore, images: Sequence[Saved]) -> dict[str, int]:
    """Of all blobs, by digest."""
    sizes: dict[str, int] = {}
    for saved in images:
        manifest = saved.image.manifest
        sizes[saved.image.digest] = len(store.read_document(saved.image.digest))
        for blob in (manifest.config, *manifest.layers):
            try:
                size = store.blob_path(blob.digest).stat().st_size
            except FileNotFoundError:
                raise _missing(blob.digest) from None
            if size != blob.size:
                raise ImageInvalidError(
                    f"the stored file of {blob.digest} has another size than its image says"
                )
            sizes[blob.digest] = size
    return sizes


def _archive(
    store: ImageStore, images: Sequence[Saved], format: Format, sizes: dict[str, int]
) -> Iterator[bytes]:
    writer = TarWriter()
    documents: dict[str, Any] = {}
    if format == "oci":
        documents[LAYOUT] = {"imageLayoutVersion": LAYOUT_VERSION}
        documents[INDEX] = _index(images, sizes)
    documents[DOCKER] = [_docker_entry(saved) for saved in images]
    for name, document in documents.items():
        content = msgspec.json.encode(document)
        yield writer.feed(TreeEntry(name, FileType.FILE, len(content))) + writer.feed(content)
    for name in ("blobs", "blobs/sha256"):
        yield writer.feed(TreeEntry(name, FileType.DIRECTORY, mode=0o755))
    for digest, size in sorted(sizes.items()):
        yield writer.feed(TreeEntry(blob_name(digest), FileType.FILE, size))
        for piece in _content(store, digest, size):
            yield writer.feed(piece)
    yield bytes(2 * BLOCK)


def _content(store: ImageStore, digest: str, size: int) -> Iterator[bytes]:
    try:
        with open(store.blob_path(digest), "rb", buffering=0) as file:
            while size and (piece := file.read(min(_PIECE, size))):
                size -= len(piece)
                yield piece
    except FileNotFoundError:
        raise _missing(digest) from None
    if size:
        raise _missing(digest)


def _index(images: Sequence[Saved], sizes: dict[str, int]) -> dict[str, Any]:
    entries = []
    for saved in images:
        for name in saved.names or (None,):
            entry: dict[str, Any] = {
                "mediaType": _media_type(saved.image),
                "digest": saved.image.digest,
                "size": sizes[saved.image.digest],
            }
            if name is not None:
                entry["annotations"] = {CONTAINERD_NAME: name, REF_NAME: name}
            config = saved.image.config
            entry["platform"] = {"architecture": config.architecture, "os": config.os}
            if config.variant:
                entry["platform"]["variant"] = config.variant
            entries.append(entry)
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}


def _media_type(image: StoredImage) -> str:
    kind = image.manifest.media_type
    return kind if kind in MANIFESTS else OCI_MANIFEST


def _docker_entry(saved: Saved) -> dict[str, Any]:
    manifest = saved.image.manifest
    return {
        "Config": blob_name(manifest.config.digest),
        "RepoTags": [parse_reference(name).familiar for name in saved.names],
        "Layers": [blob_name(layer.digest) for layer in manifest.layers],
    }


def _missing(digest: str) -> ImageInvalidError:
    return ImageInvalidError(
        f"the image is not complete: {digest} is missing", hint="pull or load it again"
    )
