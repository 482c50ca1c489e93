"""What stands beside the blobs in an archive, and names that it gives to images."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentkernel.errors import ImageInvalidError, InvalidInputError
from agentkernel.images.oci.model import MAX_LAYERS, Descriptor, Text, decode
from agentkernel.images.oci.reference import Reference, parse_reference
from agentkernel.texts import printable

LAYOUT: Final = "oci-layout"
INDEX: Final = "index.json"
DOCKER: Final = "manifest.json"
LAYOUT_VERSION: Final = "1.0.0"
# What containerd and docker call an image, complete; what the specification has for it, which is
# whatever somebody wrote.
CONTAINERD_NAME: Final = "io.containerd.image.name"
REF_NAME: Final = "org.opencontainers.image.ref.name"
MAX_IMAGES: Final = 1024


class Layout(msgspec.Struct, frozen=True, rename="camel"):
    image_layout_version: str


class DockerImage(msgspec.Struct, frozen=True, rename="pascal"):
    """An entry of `manifest.json`: names of files in the archive."""

    config: Text
    layers: Annotated[list[Text], Meta(max_length=MAX_LAYERS)]
    repo_tags: Annotated[list[Text], Meta(max_length=MAX_IMAGES)] | None = None


def blob_name(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def check_layout(document: bytes) -> None:
    version = decode(document, Layout, "the archive's oci-layout").image_layout_version
    if version != LAYOUT_VERSION:
        raise ImageInvalidError(f"the archive is an OCI layout of version {printable(version)}")


def decode_docker(document: bytes) -> list[DockerImage]:
    found = decode(document, list[DockerImage], "the archive's manifest.json")
    if len(found) > MAX_IMAGES:
        raise ImageInvalidError(f"the archive has more than {MAX_IMAGES} images")
    return found


def name_of(descriptor: Descriptor) -> str | None:
    """The complete name that an entry of `index.json` has, if it has one. A word alone is only a
    tag of something."""
    if name := descriptor.annotations.get(CONTAINERD_NAME):
        return tagged(name).name
    word = descriptor.annotations.get(REF_NAME, "")
    if "/" in word or ":" in word:
        try:
            return tagged(word).name
        except ImageInvalidError:
            return None
    return None


def tagged(name: str) -> Reference:
    """A name that an archive gives to an image. Raises ImageInvalidError."""
    try:
        reference = parse_reference(name)
    except InvalidInputError as error:
        raise ImageInvalidError(f"the archive's names can't be used: {error.message}") from None
    if reference.digest:
        raise ImageInvalidError(f"the archive names an image by a digest: {printable(name)}")
    return reference
