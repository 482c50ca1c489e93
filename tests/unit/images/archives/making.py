"""Archives as docker, OCI tools and attackers write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkernel.images.oci.archives.reading import ArchiveImage, adopt_image, read_images
from agentkernel.images.oci.archives.staging import Staging
from agentkernel.images.oci.model import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, this_platform
from agentkernel.images.oci.store import ImageStore

NAME = "docker.io/library/small:1"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """A tar archive; a link's value is its target."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return content.getvalue()


class Image:
    """A small image: layers that hold one file each, the config and the manifest."""

    def __init__(self, *contents: bytes, compress: bool = True, **config: Any) -> None:
        tars = [tar({f"file{at}": data}) for at, data in enumerate(contents or (b"one", b"two"))]
        self.tars = tars
        self.layers = [gzip.compress(layer, mtime=0) if compress else layer for layer in tars]
        platform = this_platform()
        self.config = json.dumps(
            {
                "architecture": platform.architecture,
                "os": platform.os,
                "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in tars]},
                "config": {"Cmd": ["sh"]},
                **config,
            }
        ).encode()
        kind = f"{OCI_LAYER}+gzip" if compress else OCI_LAYER
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": descriptor(OCI_CONFIG, self.config),
                "layers": [descriptor(kind, layer) for layer in self.layers],
            }
        ).encode()

    @property
    def digest(self) -> str:
        return digest(self.manifest)

    def blobs(self) -> dict[str, bytes]:
        return {blob(data): data for data in (self.manifest, self.config, *self.layers)}


def descriptor(kind: str, data: bytes, **more: Any) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data), **more}


def blob(data: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def layout(*entries: dict[str, Any]) -> dict[str, bytes]:
    """The documents of an OCI layout whose index has these entries."""
    index = {"schemaVersion": 2, "manifests": list(entries)}
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
    }


def named(image: Image, name: str | None = NAME) -> dict[str, Any]:
    notes = {} if name is None else {"annotations": {"org.opencontainers.image.ref.name": name}}
    return descriptor(OCI_MANIFEST, image.manifest, **notes)


def oci_archive(image: Image, name: str | None = NAME) -> bytes:
    return tar(layout(named(image, name)) | image.blobs())


def docker_archive(image: Image, tags: Sequence[str] = ("small:1",)) -> bytes:
    """As docker wrote it before version 25: a directory for each layer."""
    names = [f"{hashlib.sha256(layer).hexdigest()}/layer.tar" for layer in image.layers]
    config = f"{hashlib.sha256(image.config).hexdigest()}.json"
    entry = {"Config": config, "RepoTags": list(tags), "Layers": names}
    files = dict(zip(names, image.layers, strict=True))
    return tar({**files, config: image.config, "manifest.json": json.dumps([entry]).encode()})


def read(
    directory: Path, archive: bytes, *, piece: int = 1000, **limits: int
) -> list[ArchiveImage]:
    """What an archive has, read in pieces of that size."""
    files = Staging(directory, **limits)
    try:
        for at in range(0, len(archive), piece):
            files.feed(archive[at : at + piece])
        files.finish()
        return read_images(files, this_platform())
    finally:
        files.close()


def load(store: ImageStore, archive: bytes) -> list[ArchiveImage]:
    """The same, into a store, with its names."""
    with store.adding(), store.staging() as directory:
        found = read(directory, archive, piece=1 << 16)
        for image in found:
            adopt_image(store, image)
            for name in image.names:
                store.tag(name, image.digest, source=image.source)
    return found
