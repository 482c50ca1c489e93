"""Archives of images as nobody should have written them: damaged, and with documents that lie."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from agentkernel.images.oci.archives.reading import adopt_image, read_images
from agentkernel.images.oci.archives.staging import Staging
from agentkernel.images.oci.archives.writing import Saved, write_images
from agentkernel.images.oci.model import OCI_CONFIG, OCI_INDEX, OCI_LAYER, this_platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.store import ImageStore

from ..unit.images.archives.making import (
    Image,
    docker_archive,
    layout,
    named,
    oci_archive,
    tar,
)
from .making import bodies, damaged, words
from .target import Target

_IMAGE = Image()
_PLAIN = Image(compress=False)
_WHOLE = [
    oci_archive(_IMAGE),
    docker_archive(_IMAGE),
    docker_archive(_PLAIN),
    gzip.compress(oci_archive(_IMAGE), mtime=0),
]


def read_archive(data: bytes) -> None:
    """Whatever it is, only what was named and verified is kept, and nothing is left of the rest."""
    with tempfile.TemporaryDirectory(prefix="fuzz-archive-") as name:
        store = ImageStore(name)
        with store.adding(), store.staging() as directory:
            files = Staging(directory, limit_bytes=1 << 22, limit_files=64)
            try:
                files.feed(data[: len(data) // 2])
                files.feed(data[len(data) // 2 :])
                files.finish()
                found = read_images(files, this_platform())
            finally:
                files.close()
            for image in found:
                adopt_image(store, image)
        assert sorted(path.name for path in Path(name).iterdir()) == ["blobs", "lock", "partial"]
        assert list((Path(name) / "partial").iterdir()) == []
        for image in found:
            for given in image.names:
                assert parse_reference(given).name == given
            stored = store.image(image.digest)
            again = b"".join(write_images(store, [Saved(stored, tuple(image.names))]))
            assert len(again) % 512 == 0


_descriptors = bodies(
    {
        "mediaType": st.sampled_from([OCI_INDEX, OCI_CONFIG, f"{OCI_LAYER}+gzip", ""]),
        "digest": st.sampled_from([_IMAGE.digest, "sha256:" + "0" * 64, "sha512:0", "../../x"]),
        "size": st.sampled_from([len(_IMAGE.manifest), 0, -1, 1 << 60]),
        "annotations": st.dictionaries(
            st.sampled_from(
                ["org.opencontainers.image.ref.name", "io.containerd.image.name", "other"]
            ),
            st.one_of(words, st.sampled_from(["small:1", "UP/er", "a" * 400])),
            max_size=2,
        ),
        "platform": bodies({"os": words, "architecture": words}, words),
    },
    words,
)
_entries = bodies(
    {
        "Config": st.sampled_from(["config.json", "link", "../config.json", "blobs/sha256/x"]),
        "RepoTags": st.lists(st.one_of(words, st.just("small:1")), max_size=2),
        "Layers": st.lists(
            st.sampled_from(["layer.tar", "link", "loop", "/etc/passwd"]), max_size=3
        ),
    },
    words,
)


def _documents(draw_index: Any, draw_docker: Any) -> bytes:
    files = {
        **layout(named(_IMAGE)),
        "index.json": json.dumps({"manifests": draw_index}, default=repr).encode(),
        "manifest.json": json.dumps(draw_docker, default=repr).encode(),
        "config.json": _PLAIN.config,
        "layer.tar": _PLAIN.layers[0],
        **_IMAGE.blobs(),
    }
    if not draw_index:
        del files["oci-layout"]
    return tar(files, {"link": "layer.tar", "loop": "loop"})


_documented = st.builds(
    _documents, st.lists(_descriptors, max_size=3), st.lists(_entries, max_size=3)
)
TARGETS = [
    Target("image-archives", damaged(st.sampled_from(_WHOLE)), read_archive),
    Target("image-documents", _documented, read_archive),
]
