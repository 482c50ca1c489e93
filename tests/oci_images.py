"""Images for tests, made here: tiny ones of busybox, and a Debian by mmdebstrap, once."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.conformance.images import store_image
from agentkernel.images.oci.store import ImageStore

BUSYBOX = "/bin/busybox"
PROGRAMS = (
    "sh ls cat echo id stat pwd env chown chgrp mkdir touch rm test readlink find sleep true su"
)
DEBIAN = Path("/var/tmp/agentkernel-tests-debian-bookworm.tar")


@dataclass(frozen=True)
class Node:
    """A file, unless `kind` says otherwise; `link` is what a link leads to."""

    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    kind: bytes = tarfile.REGTYPE
    link: str = ""


def directory(mode: int = 0o755, uid: int = 0, gid: int = 0) -> Node:
    return Node(mode=mode, uid=uid, gid=gid, kind=tarfile.DIRTYPE)


def link(target: str) -> Node:
    return Node(mode=0o777, kind=tarfile.SYMTYPE, link=target)


Layer = Mapping[str, Node | bytes | str]
"""By path. `a/.wh.b` is a whiteout of a/b, `a/.wh..wh..opq` makes a opaque, as in any layer."""


def tar_of(layer: Layer) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, node in layer.items():
            if not isinstance(node, Node):
                node = Node(node.encode() if isinstance(node, str) else node)
            info = tarfile.TarInfo(path)
            info.mode, info.uid, info.gid = node.mode, node.uid, node.gid
            info.type, info.linkname, info.size = node.kind, node.link, len(node.content)
            tar.addfile(info, io.BytesIO(node.content))
    return stream.getvalue()


def add_image(store: ImageStore, name: str, layers: Sequence[Layer | bytes], **config: Any) -> str:
    """An image of these layers (lowest first; bytes are a tar), named; the manifest's digest.
    `config`: Env, User, WorkingDir, Entrypoint, Cmd, … as a config has them."""
    tars = [layer if isinstance(layer, bytes) else tar_of(layer) for layer in layers]
    return store_image(store, name, tars, config)


def busybox_layer() -> dict[str, Node | bytes | str]:
    if not os.path.exists(BUSYBOX):
        pytest.skip("there is no static busybox here (apt-get install busybox-static)")
    layer: dict[str, Node | bytes | str] = {
        "bin": directory(),
        "bin/busybox": Node(Path(BUSYBOX).read_bytes(), 0o755),
    }
    layer |= {f"bin/{program}": link("busybox") for program in PROGRAMS.split()}
    return layer


def busybox_image(store: ImageStore, name: str, *more: Layer, **config: Any) -> str:
    """Busybox, and layers above it."""
    return add_image(store, name, [busybox_layer(), *more], **config)


def debian_tar() -> bytes:
    """The root of a Debian as its official image has it: made once on a machine, by whoever can."""
    if not DEBIAN.exists():
        if not shutil.which("mmdebstrap"):
            pytest.skip("mmdebstrap is not installed, and there is no image that it has made")
        if os.getuid() != 0 and idmaps.find_subids() is None:
            pytest.skip(f"this user has no subuids to make {DEBIAN} with")
        _make_debian()
    return DEBIAN.read_bytes()


def _make_debian() -> None:
    mode = "root" if os.getuid() == 0 else "unshare"
    with tempfile.TemporaryDirectory(prefix="agentkernel-debian-", dir="/var/tmp") as parent:
        made = Path(parent) / "root.tar"
        done = subprocess.run(
            [
                "mmdebstrap", f"--mode={mode}", "--variant=minbase", "--format=tar", "--quiet",
                # As the official image has it, whatever this machine's own sources are.
                '--customize-hook=rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/sources.list',
                '--customize-hook=printf "deb http://deb.debian.org/debian bookworm main\\n" '
                '> "$1"/etc/apt/sources.list',
                "bookworm", str(made),
            ],
            capture_output=True, timeout=280, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()[-1000:]
        made.chmod(0o644)
        try:
            os.link(made, DEBIAN)
        except FileExistsError:  # somebody else was first
            return
