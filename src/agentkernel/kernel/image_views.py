"""What is shown of an image: in a list, and whole. Names are as people write them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from agentkernel.images import cache
from agentkernel.images.oci.model import ContainerConfig, Platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.store import ImageStore, StoredImage
from agentkernel.images.oci.work import LayerWorker


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is here. `digest` is that of its manifest, `id` that of its config, as docker
    counts; `size` what its layers take as they are kept, compressed; `created` as its maker wrote
    it. `sandboxes`: the names (or ids) of those that were made from it."""

    names: list[str]
    digest: str
    id: str
    size: int
    created: str
    platform: str
    sandboxes: list[str]


class ImageLayer(msgspec.Struct, frozen=True, kw_only=True):
    """`digest` and `size` are those of the file as it came, `diff_id` is the digest of its tar.
    `unpacked`: its files are ready for sandboxes."""

    digest: str
    diff_id: str
    size: int
    media_type: str
    unpacked: bool


class ImageProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of the image starts from; HEALTHCHECK and the like are not obeyed."""

    user: str
    env: list[str]
    entrypoint: list[str]
    cmd: list[str]
    working_dir: str
    exposed_ports: list[str]
    volumes: list[str]
    labels: dict[str, str]
    stop_signal: str
    shell: list[str]


class ImageStep(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an image's history, as its maker wrote it."""

    created: str
    created_by: str
    comment: str
    empty_layer: bool


class ImageDetail(ImageInfo, frozen=True, kw_only=True):
    """`index`: the digest of the list of several machines' images that it was chosen from.
    `disk_bytes`: what its own files take, of which other images may share some; without what is
    unpacked of it."""

    index: str | None
    author: str
    config: ImageProcess
    layers: list[ImageLayer]
    history: list[ImageStep]
    disk_bytes: int


class ImageRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """`untagged`: names that are gone. `deleted`: digests of images whose content is, too."""

    untagged: list[str]
    deleted: list[str]
    freed_bytes: int


class ImagesPruned(msgspec.Struct, frozen=True, kw_only=True):
    """`blobs` and `layers`: how many files of images and how many unpacked layers went."""

    untagged: list[str]
    blobs: int
    layers: int
    freed_bytes: int


def familiar(name: str) -> str:
    return parse_reference(name).familiar


def info_of(image: StoredImage, sandboxes: Sequence[str] = ()) -> ImageInfo:
    return ImageInfo(**_shared(image, sandboxes))


def detail_of(
    image: StoredImage, store: ImageStore, worker: LayerWorker, sandboxes: Sequence[str] = ()
) -> ImageDetail:
    manifest, config = image.manifest, image.config
    source = next((entry.source for entry in store.names() if entry.digest == image.digest), "")
    blobs = {image.digest, image.id, *(layer.digest for layer in manifest.layers)}
    return ImageDetail(
        **_shared(image, sandboxes),
        index=source or None,
        author=config.author,
        config=_process(config.process),
        layers=[
            ImageLayer(
                digest=layer.digest,
                diff_id=diff_id,
                size=layer.size,
                media_type=layer.media_type,
                unpacked=os.path.isdir(layer_path(store, worker, diff_id)),
            )
            for layer, diff_id in zip(manifest.layers, config.rootfs.diff_ids, strict=True)
        ],
        history=[
            ImageStep(
                created=step.created,
                created_by=step.created_by,
                comment=step.comment,
                empty_layer=step.empty_layer,
            )
            for step in config.history
        ],
        disk_bytes=disk_bytes(store, blobs),
    )


def layer_path(store: ImageStore, worker: LayerWorker, diff_id: str) -> str:
    """Where a layer is when it is unpacked."""
    return os.path.join(cache.layers_dir(store.directory), worker.layer_name(diff_id))


def disk_bytes(store: ImageStore, digests: Collection[str]) -> int:
    total = 0
    for digest in digests:
        try:
            total += os.stat(store.blob_path(digest)).st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def _shared(image: StoredImage, sandboxes: Sequence[str]) -> dict[str, Any]:
    config = image.config
    platform = Platform(architecture=config.architecture, os=config.os, variant=config.variant)
    return {
        "names": [familiar(name) for name in image.names],
        "digest": image.digest,
        "id": image.id,
        "size": image.size,
        "created": config.created,
        "platform": platform.words,
        "sandboxes": list(sandboxes),
    }


def _process(config: ContainerConfig) -> ImageProcess:
    return ImageProcess(
        user=config.user,
        env=config.env or [],
        entrypoint=config.entrypoint or [],
        cmd=config.cmd or [],
        working_dir=config.working_dir,
        exposed_ports=_keys(config.exposed_ports),
        volumes=_keys(config.volumes),
        labels=dict(config.labels or {}),
        stop_signal=config.stop_signal,
        shell=config.shell or [],
    )


def _keys(flags: Mapping[str, Any] | None) -> list[str]:
    return sorted(flags or ())
