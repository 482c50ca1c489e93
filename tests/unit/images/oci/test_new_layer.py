"""Layers of our own making."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO

from agentkernel.images.oci.new_layer import add_layer
from agentkernel.images.oci.store import ImageStore, digest_of
from agentkernel.images.oci.work import Packed

TAR = bytes(range(256)) * 4096


def pack(output: BinaryIO) -> Packed:
    for at in range(0, len(TAR), 10_000):
        output.write(TAR[at : at + 10_000])
    return Packed(digest_of(TAR), len(TAR))


def test_a_layer_is_compressed_and_named_by_what_it_is(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    layer, diff_id = add_layer(store, pack)
    kept = store.blob_path(layer.digest).read_bytes()
    assert gzip.decompress(kept) == TAR and diff_id == digest_of(TAR)
    assert (digest_of(kept), len(kept)) == (layer.digest, layer.size)
    assert layer.media_type.endswith("+gzip")
    again, _ = add_layer(store, pack)
    assert again == layer
