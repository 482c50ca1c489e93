"""Documents of images: what is read of them, and what is refused."""

from __future__ import annotations

import json

import pytest

from agentkernel.errors import ImageInvalidError
from agentkernel.images.oci.model import (
    MAX_DOCUMENT,
    ContainerConfig,
    Descriptor,
    Index,
    Kind,
    Platform,
    choose,
    decode,
    decode_config,
    decode_manifest,
)

DIGEST = "sha256:" + "ab" * 32
ENTRY = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
MANIFEST = {"schemaVersion": 2, "config": ENTRY, "layers": [ENTRY], "more": {"x": 1}}
CONFIG = {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [DIGEST]}}


def document(value: object) -> bytes:
    return json.dumps(value).encode()


def test_manifest_and_config_are_read() -> None:
    manifest = decode_manifest(document(MANIFEST))
    config = decode_config(document({**CONFIG, "config": {"Env": ["A=1"], "Cmd": None}}), manifest)
    assert manifest.layers[0].digest == DIGEST
    assert config.process.environment == {"A": "1"}
    assert config.process.cmd is None


@pytest.mark.parametrize(
    "change",
    [
        {"schemaVersion": 1},
        {"config": None},
        {"layers": [{**ENTRY, "digest": "sha256:../../etc/passwd"}]},
        {"layers": [{**ENTRY, "digest": "sha512:" + "ab" * 64}]},
        {"layers": [{**ENTRY, "size": -1}]},
        {"layers": [{**ENTRY, "size": 1 << 60}]},
        {"layers": [ENTRY] * 128},
    ],
)
def test_a_manifest_that_can_not_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ImageInvalidError):
        decode_manifest(document({**MANIFEST, **change}))


def test_what_is_no_document_is_refused() -> None:
    for content in (b"", b"<html>", b"\xff\xfe", b"[" * 100_000, b" " * (MAX_DOCUMENT + 1)):
        with pytest.raises(ImageInvalidError):
            decode_manifest(content)


def test_config_and_manifest_must_agree() -> None:
    manifest = decode_manifest(document({**MANIFEST, "layers": []}))
    with pytest.raises(ImageInvalidError, match="other numbers of layers"):
        decode_config(document(CONFIG), manifest)


def test_variables_without_a_value_or_with_a_nul_are_left_out() -> None:
    config = ContainerConfig(env=["A=1", "B", "=c", "A=2", "D=x\0y", "E=a=b"])
    assert config.environment == {"A": "2", "E": "a=b"}


def entry(os: str, architecture: str, variant: str = "", size: int = 1) -> Descriptor:
    platform = Platform(os=os, architecture=architecture, variant=variant)
    return Descriptor(media_type="m", digest=DIGEST, size=size, platform=platform)


def test_the_manifest_for_this_machine_is_chosen() -> None:
    index = Index(manifests=[entry("windows", "amd64"), entry("linux", "amd64", size=7)])
    assert choose(index, Platform(os="linux", architecture="amd64")).size == 7
    arm = Index(manifests=[entry("linux", "arm", "v6"), entry("linux", "arm", "v7", size=7)])
    assert choose(arm, Platform(os="linux", architecture="arm", variant="v7")).size == 7


def test_an_image_for_other_machines_says_for_which() -> None:
    index = Index(manifests=[entry("windows", "amd64"), entry("unknown", "unknown")])
    with pytest.raises(ImageInvalidError, match=r"not for linux/amd64; it is for windows/amd64"):
        choose(index, Platform(os="linux", architecture="amd64"))


def test_an_index_is_told_from_a_manifest() -> None:
    assert decode(document({"manifests": []}), Kind, "it").is_index
    assert not decode(document(MANIFEST), Kind, "it").is_index
