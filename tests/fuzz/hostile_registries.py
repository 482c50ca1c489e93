"""What a registry may say: documents, demands for a login, addresses to go to, its excuses."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import strategies as st

from agentkernel.images.oci.kinds import decode_document
from agentkernel.images.oci.model import (
    DOCKER_CONFIG,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Index,
    Platform,
    choose,
    decode_config,
)
from agentkernel.images.oci.registry.challenges import parse_challenges
from agentkernel.images.oci.registry.failures import Lost, of_status
from agentkernel.images.oci.registry.hosts import Origin, Place, follow

from .making import bodies, damaged, words
from .target import Target

_kinds = st.sampled_from(
    [
        OCI_INDEX,
        OCI_MANIFEST,
        DOCKER_LIST,
        DOCKER_MANIFEST,
        OCI_CONFIG,
        DOCKER_CONFIG,
        OCI_LAYER,
        "",
    ]
)
_digests = st.sampled_from(["sha256:" + letter * 64 for letter in "0ag"] + ["sha512:00", "../x"])
_platforms = bodies({"os": st.just("linux"), "architecture": st.just("amd64"), "variant": words})
_descriptors = bodies(
    {
        "mediaType": _kinds,
        "digest": _digests,
        "size": st.sampled_from([0, 5, -1, 2**45, 2**63, 2**70]),
        "platform": _platforms,
        "urls": st.lists(words, max_size=2),
    }
)
_documents = bodies(
    {
        "schemaVersion": st.sampled_from([2, 1, 0]),
        "mediaType": _kinds,
        "manifests": st.lists(_descriptors, max_size=3),
        "config": _descriptors,
        "layers": st.lists(_descriptors, max_size=3),
        "fsLayers": st.just([]),
        "annotations": st.dictionaries(words, words, max_size=2),
    }
)


def _json(value: Any) -> bytes:
    return json.dumps(value, default=repr).encode("utf-8", "replace")


_CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64]},
    "config": {"Env": ["A=b", "C"], "ExposedPorts": {"80/tcp": {}}, "Labels": {"a": "b"}},
    "history": [{"empty_layer": True}],
}


def read_document(given: tuple[bytes, str]) -> None:
    document, said = given
    found = decode_document(document, said)
    if isinstance(found, Index):
        choose(found, Platform(architecture="amd64", os="linux"))
    else:
        config = decode_config(_json(_CONFIG), found)
        assert len(config.rootfs.diff_ids) == len(found.layers) == 1


def read_demand(text: str) -> None:
    for challenge in parse_challenges([text, text]):
        assert all(name == name.lower() for name in challenge.parameters)


def read_address(text: str) -> None:
    with contextlib.suppress(ValueError):
        place = follow(Place(Origin("https", "registry.example", 443), "/v2/"), text)
        assert place.origin.scheme in ("http", "https")
        assert place.target.isascii() and place.target.startswith("/")


def read_excuse(given: tuple[int, bytes]) -> None:
    status, body = given
    found = of_status("registry.example", "it", status, body, sent=True, secrets=["word"])
    error = found.error if isinstance(found, Lost) else found
    assert error.message.isprintable() and len(error.message) < 500
    assert "word" not in error.message


_header = st.one_of(
    st.text(max_size=80),
    damaged(
        st.sampled_from(
            [
                b'Bearer realm="https://auth.example/token",service="x",scope="repository:a:pull"',
                b'Basic realm="a \\"b\\"", Negotiate, Digest qop=auth',
            ]
        )
    ).map(lambda data: data.decode("latin-1")),
)
_address = st.one_of(
    st.text(max_size=60),
    damaged(
        st.sampled_from(
            [
                b"https://cdn.example:8443/a?b=%2F#c",
                b"//[::1]:80/x",
                b"/v2/x",
                b"http://127.0.0.1\\@a/",
            ]
        )
    ).map(lambda data: data.decode("latin-1")),
)
_excuses = st.tuples(
    st.sampled_from([400, 401, 403, 404, 408, 429, 500, 503, 999]),
    st.one_of(
        st.binary(max_size=80),
        bodies({"errors": st.lists(bodies({"code": words, "message": words}), max_size=4)}).map(
            _json
        ),
        st.just(_json({"errors": [{"message": "pass\x1bword word" * 50}]})),
    ),
)
TARGETS = [
    Target(
        "registry-documents",
        st.tuples(
            st.one_of(_documents.map(_json), damaged(_documents.map(_json))),
            st.one_of(_kinds, words),
        ),
        read_document,
    ),
    Target("registry-demands", _header, read_demand),
    Target("registry-addresses", _address, read_address),
    Target("registry-excuses", _excuses, read_excuse),
]
