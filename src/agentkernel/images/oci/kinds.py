"""What a document of an image is, and whether it is of a kind that can be run."""

from __future__ import annotations

import msgspec

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.model import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    INDEXES,
    MANIFESTS,
    MAX_DOCUMENT,
    OCI_CONFIG,
    OCI_LAYER,
    Descriptor,
    Index,
    Manifest,
    Name,
    decode,
    decode_manifest,
)
from agentkernel.texts import printable

CONFIGS = frozenset({OCI_CONFIG, DOCKER_CONFIG})
LAYERS = frozenset(
    {
        *(OCI_LAYER + suffix for suffix in ("", "+gzip", "+zstd")),
        *(DOCKER_LAYER + suffix for suffix in ("", ".gzip", ".zstd")),
    }
)
_ABSENT = msgspec.Raw()
_OLD = "application/vnd.docker.distribution.manifest.v1"


class _Head(msgspec.Struct, rename="camel"):
    schema_version: int = 2
    media_type: Name = ""
    manifests: msgspec.Raw = _ABSENT
    layers: msgspec.Raw = _ABSENT
    fs_layers: msgspec.Raw = _ABSENT


def decode_document(document: bytes, said: str = "") -> Index | Manifest:
    """An index or the manifest of an image. `said`: the media type it came with, if one did.

    Raises ImageInvalidError. One document has one meaning: what could be read as both is refused.
    """
    head = decode(document, _Head, "the manifest")
    kind = head.media_type
    if head.schema_version == 1 or head.fs_layers != _ABSENT or said.startswith(_OLD):
        raise ImageInvalidError(
            "the image has a manifest of version 1, which is no longer used",
            hint="push it again with a current tool; docker pull and docker push do it",
        )
    known = INDEXES | MANIFESTS
    if kind and said in known and kind != said:
        raise ImageInvalidError("the manifest came as another kind of document than it says it is")
    if _ABSENT not in (head.manifests, head.layers):
        raise ImageInvalidError("the manifest is an index and an image at once")
    kind = kind or (said if said in known else "")
    if kind in INDEXES or (not kind and head.manifests != _ABSENT):
        return decode(document, Index, "the index")
    if kind and kind not in MANIFESTS:
        raise ImageInvalidError(f"{printable(kind)} is nothing that can be run")
    manifest = decode_manifest(document)
    require_image(manifest)
    return manifest


def require_image(manifest: Manifest) -> None:
    """Raises ImageInvalidError for what registries keep besides images, and for layers that nobody
    here could read."""
    config = manifest.config.media_type
    if config not in CONFIGS:
        raise ImageInvalidError(
            f"this is no image but something else that registries keep ({printable(config)})",
            hint="signatures, charts and the like can't be run; check the tag",
        )
    if manifest.config.size > MAX_DOCUMENT:
        raise ImageInvalidError(f"the image's config has more than {MAX_DOCUMENT >> 20} MiB")
    sizes: dict[str, int] = {}
    for layer in manifest.layers:
        _require_layer(layer)
        if sizes.setdefault(layer.digest, layer.size) != layer.size:
            raise ImageInvalidError(f"the manifest gives {layer.digest} two sizes")


def _require_layer(layer: Descriptor) -> None:
    kind = layer.media_type
    if kind in LAYERS:
        return
    if "encrypted" in kind:
        why, hint = "is encrypted", "images are pulled in the clear; decrypt it with skopeo copy"
    elif "foreign" in kind or "nondistributable" in kind:
        why = "is kept elsewhere, which is so for Windows alone"
        hint = "choose an image for Linux"
    else:
        why, hint = f"is of the unknown kind {printable(kind)}", "push it with gzip or zstd layers"
    raise ImageInvalidError(f"the layer {layer.digest} {why}", hint=hint)
