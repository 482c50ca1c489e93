"""Files of an image, of a home directory or of the machine, as nobody should have written them."""

from __future__ import annotations

import contextlib
import gzip
import io
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from agentkernel.backends.local import idmaps
from agentkernel.images import host
from agentkernel.images.bundles import certificates
from agentkernel.images.directory import resolve_directory
from agentkernel.images.model import IdView
from agentkernel.images.oci import compression
from agentkernel.images.toolchains import find
from agentkernel.images.truststore import add_to_java_store, hashed_name

from .making import damaged, words
from .target import Target

_text = st.one_of(
    st.binary(max_size=60),
    damaged(
        st.sampled_from(
            [
                b"home = /usr/bin\nversion = 3.11\n",
                b"python 3.11\nnodejs ../../x # y\n",
                b"root:100000:65536\nme:1:2\n",
            ]
        )
    ),
    st.sampled_from([b"home = /a\0b", b"home = " + b"/x" * 4000, b"python \0", b"a:\xc2\xb2:3\n"]),
    st.just(b"a:" + b"9" * 5000 + b":1\n"),
)


def read_home(text: bytes) -> None:
    """A home whose files are all of this content: pyvenv.cfg, .tool-versions, settings."""
    with tempfile.TemporaryDirectory(prefix="fuzz-home-") as name:
        home = Path(name)
        for path in ("venv/bin/python", "venv/pyvenv.cfg", ".tool-versions", ".asdf/shims/x"):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(text)
        for path in (".rustup/settings.toml", ".cargo/bin/cargo"):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(text)
        entries = ":".join(f"{home}/{part}" for part in ("venv/bin", ".asdf/shims", ".cargo/bin"))
        found = find(entries, name, ["/usr", "/bin"], environment={})
        for tree in found.trees:
            assert tree.path.startswith("/") and not name.startswith(tree.path + "/")


_stores = st.one_of(
    st.binary(max_size=200),
    damaged(
        st.sampled_from(
            [
                bytes.fromhex("feedfeed0000000200000000") + bytes(20),
                b"0\x82\x01\x00\x02\x01\x03",
                b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            ]
        )
    ),
)


def read_store(data: bytes) -> None:
    """A trust store, a bundle and a certificate of an image."""
    made = add_to_java_store(data, b"ours", certificates(data))
    assert made is None or made.startswith(bytes.fromhex("feedfeed"))
    with contextlib.suppress(ValueError):
        assert hashed_name(data).endswith(".0")


def read_ranges(text: bytes) -> None:
    with tempfile.NamedTemporaryFile(prefix="fuzz-subuid-") as file:
        file.write(text)
        file.flush()
        for _, first, count in idmaps.read_subids(file.name):
            assert first >= 0 and count >= 0


_points = st.sampled_from(["/usr/é\\040x", "/usr/a\\134b", "/usr/\\", "/usr/\\400", "/opt/x\\x41"])


def read_mounts(point: str) -> None:
    line = f"36 35 98:0 / {point} rw,noatime - ext3 /dev/root rw\n"
    with tempfile.NamedTemporaryFile(prefix="fuzz-mounts-") as file:
        file.write(line.encode("utf-8", "surrogateescape"))
        file.flush()
        before, host.MOUNTINFO = host.MOUNTINFO, file.name
        try:
            host._mounts_below("", ["usr", "opt"], [])
        finally:
            host.MOUNTINFO = before


def read_name(name: str) -> None:
    """The words after --image."""
    with tempfile.TemporaryDirectory(prefix="fuzz-cache-") as cache:
        resolve_directory(f"/nonexistent/{name}", cache, IdView("range", 0, 0))


_ZSTD = bytes.fromhex("28b52ffd200d69000061677261677261677261672021")
_streams = st.one_of(
    st.binary(max_size=100),
    damaged(
        st.lists(
            st.sampled_from(
                [
                    gzip.compress(b"layer" * 50, mtime=0),
                    gzip.compress(b"", mtime=0),
                    _ZSTD,
                    bytes.fromhex("502a4d1803000000") + b"abc",
                    bytes(20),
                ]
            ),
            max_size=4,
        ).map(b"".join)
    ),
)


def read_stream(data: bytes) -> None:
    """A compressed layer: pieces of a bounded size, and never more read than there is."""
    read = 0

    def count(total: int) -> None:
        nonlocal read
        read = total

    for piece in compression.uncompressed(io.BytesIO(data), count):
        assert 0 < len(piece) <= compression.PIECE_BYTES
    assert read == len(data)


_point_text = st.text(st.characters(codec="utf-8", exclude_characters=" \n\0"), max_size=8)
TARGETS = [
    Target("homes", _text, read_home),
    Target("trust-stores", _stores, read_store),
    Target("id-ranges", _text, read_ranges),
    Target("mounts", st.one_of(_points, _point_text.map(lambda text: f"/usr/{text}")), read_mounts),
    Target("image-names", words, read_name),
    Target("layer-streams", _streams, read_stream),
]
