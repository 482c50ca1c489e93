"""Which images an archive has: its documents, followed to files that were staged.

Only files that a document names are looked for, by exactly that name, and each has to have the
digest and the size that the document says. An archive that is both, an OCI layout and one of
docker's, is read as the first, whose manifests are the original ones; of the second, which has
none, they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.archives.decompressing import compression_of
from agentkernel.images.oci.archives.documents import (
    DOCKER,
    INDEX,
    LAYOUT,
    MAX_IMAGES,
    DockerImage,
    blob_name,
    check_layout,
    decode_docker,
    name_of,
    tagged,
)
from agentkernel.images.oci.archives.staging import StagedFile, Staging
from agentkernel.images.oci.model import (
    INDEXES,
    OCI_CONFIG,
    OCI_LAYER,
    Descriptor,
    Index,
    Kind,
    Manifest,
    Platform,
    choose,
    decode,
    decode_config,
    decode_manifest,
)
from agentkernel.images.oci.store import ImageStore, digest_of
from agentkernel.texts import printable


@dataclass
class ArchiveImage:
    """An image of an archive. `documents` are its manifest, its config and, if it was chosen from
    one, its index; `layers` are files by their digests. `source`: the index's digest."""

    digest: str
    manifest: Manifest
    documents: list[bytes]
    layers: dict[str, StagedFile]
    source: str = ""
    names: list[str] = field(default_factory=list)


def read_images(files: Staging, platform: Platform) -> list[ArchiveImage]:
    """All images of an archive; of one for several machines, that for `platform`. Raises
    ImageInvalidError."""
    layout, index, docker = (files.read(name) for name in (LAYOUT, INDEX, DOCKER))
    if layout is not None and index is not None:
        check_layout(layout)
        found = _of_layout(files, decode(index, Index, "the archive's index.json"), platform)
        if docker is not None:
            _add_names(found, files, decode_docker(docker))
    elif docker is not None:
        found = [_of_docker(files, entry) for entry in decode_docker(docker)]
    else:
        raise ImageInvalidError(
            "the archive is neither an OCI layout nor what `docker save` writes",
            hint="the files of a root file system become an image by: agentkernel image import",
        )
    if not found:
        raise ImageInvalidError("the archive has no image")
    return _merged(found)


def _of_layout(files: Staging, index: Index, platform: Platform) -> list[ArchiveImage]:
    entries = [entry for entry in index.manifests if not _is_attestation(entry)]
    if len(entries) > MAX_IMAGES:
        raise ImageInvalidError(f"the archive has more than {MAX_IMAGES} images")
    unnamed = all(entry.platform is not None and name_of(entry) is None for entry in entries)
    if len(entries) > 1 and unnamed:
        # One image for several machines, without an index of its own.
        entries = [choose(index, platform)]
    found = []
    for entry in entries:
        document, source = _document(files, entry), ""
        documents = []
        if decode(document, Kind, "a manifest of the archive").is_index:
            chosen = choose(decode(document, Index, "an index of the archive"), platform)
            documents, source = [document], entry.digest
            document = _document(files, chosen)
        image = _image(files, document)
        image.documents += documents
        image.source = source
        if name := name_of(entry):
            image.names.append(name)
        found.append(image)
    return found


def _is_attestation(entry: Descriptor) -> bool:
    """What builders add about an image, which is none."""
    known = entry.platform is None or entry.platform.os != "unknown"
    return not known and entry.media_type not in INDEXES


def _image(files: Staging, document: bytes) -> ArchiveImage:
    manifest = decode_manifest(document)
    config = _document(files, manifest.config)
    decode_config(config, manifest)
    layers = {layer.digest: _blob(files, layer) for layer in manifest.layers}
    return ArchiveImage(digest_of(document), manifest, [document, config], layers)


def _document(files: Staging, descriptor: Descriptor) -> bytes:
    _blob(files, descriptor)
    content = files.read(blob_name(descriptor.digest))
    assert content is not None
    return content


def _blob(files: Staging, descriptor: Descriptor) -> StagedFile:
    found = files.find(blob_name(descriptor.digest))
    if found is None:
        raise ImageInvalidError(
            f"the archive is not complete: {descriptor.digest} is missing",
            hint="some archives leave out what their writer thought known; save it again, whole",
        )
    if found.digest != descriptor.digest:
        raise ImageInvalidError(
            f"what the archive has as {descriptor.digest} has the digest {found.digest}"
        )
    if found.size != descriptor.size:
        raise ImageInvalidError(f"{descriptor.digest} in the archive has another size than it says")
    return found


def _of_docker(files: Staging, entry: DockerImage) -> ArchiveImage:
    document = files.read(entry.config)
    if document is None:
        raise _absent(entry.config)
    layers = [_layer(files, name) for name in entry.layers]
    manifest = Manifest(
        config=Descriptor(OCI_CONFIG, digest_of(document), len(document)),
        layers=[Descriptor(_media_type(file), file.digest, file.size) for file in layers],
    )
    config = decode_config(document, manifest)
    for file, diff_id in zip(layers, config.rootfs.diff_ids, strict=True):
        # What is compressed is checked when it is unpacked.
        if not compression_of(file.head) and file.digest != diff_id:
            raise ImageInvalidError(
                f"a layer that should be {diff_id} has the digest {file.digest}"
            )
    content = _canonical(manifest)
    return ArchiveImage(
        digest_of(content),
        manifest,
        [content, document],
        {file.digest: file for file in layers},
        names=[tagged(name).name for name in entry.repo_tags or ()],
    )


def _layer(files: Staging, name: str) -> StagedFile:
    found = files.find(name)
    if found is None:
        raise _absent(name)
    return found


def _absent(name: str) -> ImageInvalidError:
    return ImageInvalidError(f"the archive is not complete: {printable(name)} is missing")


def _media_type(file: StagedFile) -> str:
    compression = compression_of(file.head)
    return f"{OCI_LAYER}+{compression}" if compression else OCI_LAYER


def _canonical(manifest: Manifest) -> bytes:
    """The same image always has the same manifest."""
    whole = msgspec.to_builtins(manifest)
    wanted = ("schemaVersion", "mediaType", "config", "layers")
    return msgspec.json.encode({key: whole[key] for key in wanted})


def _add_names(found: list[ArchiveImage], files: Staging, entries: list[DockerImage]) -> None:
    """Those that docker's own document has besides."""
    for entry in entries:
        config = files.find(entry.config)
        for image in found:
            if config is not None and image.manifest.config.digest == config.digest:
                image.names += [tagged(name).name for name in entry.repo_tags or ()]


def _merged(found: list[ArchiveImage]) -> list[ArchiveImage]:
    """An image that stands in an index once for each of its names is one."""
    by_digest: dict[str, ArchiveImage] = {}
    for image in found:
        known = by_digest.setdefault(image.digest, image)
        known.names = list(dict.fromkeys([*known.names, *image.names]))
    return list(by_digest.values())


def adopt_image(store: ImageStore, image: ArchiveImage) -> None:
    """Makes an archive's image one of the store, without a name. Preconditions: `adding` is held,
    and the files are still staged or adopted already."""
    for digest, file in image.layers.items():
        if not store.has_blob(digest):
            store.adopt(file.path, digest)
    for document in image.documents:
        store.put_document(document)
