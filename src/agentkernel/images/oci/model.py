"""The documents of an image as they stand in registries and archives: index, manifest, config.

They come from anybody: unknown fields are ignored, what is read is bounded and checked here, and a
document's bytes are kept as they came, since its digest is its name.
"""

from __future__ import annotations

import platform
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from agentkernel.errors import ImageInvalidError
from agentkernel.texts import printable

# The most that a manifest, an index or a config may be; registries allow 4 MiB.
MAX_DOCUMENT = 4 << 20
MAX_LAYERS = 127
MAX_SIZE = 1 << 45

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"

INDEXES = frozenset({OCI_INDEX, DOCKER_LIST})
MANIFESTS = frozenset({OCI_MANIFEST, DOCKER_MANIFEST})

Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=64 << 10)]
Texts = Annotated[list[Text], Meta(max_length=4096)]
Flags = Annotated[dict[Text, Any], Meta(max_length=4096)]

T = TypeVar("T")


class Platform(msgspec.Struct, frozen=True, omit_defaults=True):
    architecture: Name = ""
    os: Name = ""
    variant: Name = ""

    @property
    def words(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A blob by its digest."""

    media_type: Name
    digest: Digest
    size: Size
    platform: Platform | None = None
    annotations: dict[str, str] = {}


class Index(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One image for several machines."""

    manifests: Annotated[list[Descriptor], Meta(max_length=1024)]
    schema_version: int = 2
    media_type: Name = OCI_INDEX
    annotations: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """One image for one machine: its config and its layers, lowest first."""

    config: Descriptor
    layers: Annotated[list[Descriptor], Meta(max_length=MAX_LAYERS)]
    schema_version: int = 2
    media_type: Name = OCI_MANIFEST
    annotations: dict[str, str] = {}


class Healthcheck(msgspec.Struct, frozen=True, omit_defaults=True, rename="pascal"):
    """Recorded, not obeyed. Times in nanoseconds."""

    test: Texts = []
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    start_interval: int = 0
    retries: int = 0


class ContainerConfig(msgspec.Struct, frozen=True, omit_defaults=True, rename="pascal"):
    """What a process of the image starts from. None and nothing mean the same."""

    user: Text = ""
    env: Texts | None = None
    entrypoint: Texts | None = None
    cmd: Texts | None = None
    working_dir: Text = ""
    exposed_ports: Flags | None = None
    volumes: Flags | None = None
    labels: Annotated[dict[str, str], Meta(max_length=4096)] | None = None
    stop_signal: Name = ""
    shell: Texts | None = None
    healthcheck: Healthcheck | None = None

    @property
    def environment(self) -> dict[str, str]:
        """`env` as a map: without what has no `=`; of a name given twice the last counts."""
        pairs = (entry.partition("=") for entry in self.env or ())
        return {name: value for name, mark, value in pairs if name and mark and "\0" not in value}


class RootFs(msgspec.Struct, frozen=True):
    diff_ids: Annotated[list[Digest], Meta(max_length=MAX_LAYERS)]
    type: Name = "layers"


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    created: Name = ""
    created_by: Text = ""
    author: Text = ""
    comment: Text = ""
    empty_layer: bool = False


class ImageConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The config blob. `rootfs.diff_ids` are the digests of the layers' tars, uncompressed."""

    architecture: Name
    os: Name
    rootfs: RootFs
    config: ContainerConfig | None = None
    created: Name = ""
    author: Text = ""
    variant: Name = ""
    history: Annotated[list[History], Meta(max_length=4096)] = []

    @property
    def process(self) -> ContainerConfig:
        return self.config or ContainerConfig()


class Kind(msgspec.Struct, rename="camel"):
    """Enough of a document to say what it is."""

    media_type: Name = ""
    manifests: Any = None
    layers: Any = None

    @property
    def is_index(self) -> bool:
        return self.media_type in INDEXES or (not self.media_type and self.manifests is not None)


def decode(document: bytes, type: type[T], what: str) -> T:
    """Raises ImageInvalidError."""
    if len(document) > MAX_DOCUMENT:
        raise ImageInvalidError(f"{what} has more than {MAX_DOCUMENT >> 20} MiB")
    try:
        return msgspec.json.decode(document, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ImageInvalidError(f"{what} can't be read: {printable(str(error))}") from None


def decode_manifest(document: bytes) -> Manifest:
    """Raises ImageInvalidError, also for an old manifest, or one of something that is no image."""
    manifest = decode(document, Manifest, "the manifest")
    if manifest.schema_version != 2:
        raise ImageInvalidError(
            f"the manifest is of version {manifest.schema_version}, which nobody writes any more",
            hint="push the image again with a current tool",
        )
    return manifest


def decode_config(document: bytes, manifest: Manifest) -> ImageConfig:
    """Raises ImageInvalidError, also where config and manifest don't agree on the layers."""
    config = decode(document, ImageConfig, "the image's config")
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise ImageInvalidError("the image's config and its manifest have other numbers of layers")
    return config


_MACHINES = {"x86_64": ("amd64", ""), "aarch64": ("arm64", ""), "riscv64": ("riscv64", "")}


def this_platform() -> Platform:
    architecture, variant = _MACHINES.get(platform.machine(), (platform.machine(), ""))
    return Platform(architecture=architecture, os="linux", variant=variant)


def choose(index: Index, wanted: Platform) -> Descriptor:
    """The manifest for a machine. Raises ImageInvalidError that says which there are."""
    fitting = [
        entry
        for entry in index.manifests
        if entry.platform is not None
        and (entry.platform.os, entry.platform.architecture) == (wanted.os, wanted.architecture)
        and not (wanted.variant and entry.platform.variant not in ("", wanted.variant))
    ]
    if fitting:
        return fitting[0]
    if len(index.manifests) == 1 and index.manifests[0].platform is None:
        return index.manifests[0]
    there = {entry.platform.words for entry in index.manifests if entry.platform}
    names = ", ".join(sorted(printable(name) for name in there - {"unknown/unknown"})) or "nothing"
    raise ImageInvalidError(
        f"the image is not for {wanted.words}; it is for {names}",
        hint="choose one that is with --platform OS/ARCHITECTURE, or another tag",
    )
