"""A registry of the tests' own, Debian's `docker-registry`, and images to push to it, made here.

    with running_registry(tmp_path) as registry:
        image = make_image([make_layer({"hello": b"hi\n"})])
        registry.push("app", "1.0", image)
        ... pull f"{registry.address}/app:1.0"

It listens on the loopback at a port that the kernel chose, and is gone with the block.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentkernel.images.oci.model import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
)

USER = "alice"
PASSWORD = "correct horse"
# bcrypt of the password at its lowest cost: the only kind of line that the registry takes.
_HTPASSWD = f"{USER}:$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n"
_LISTENING = re.compile(r"listening on 127\.0\.0\.1:([0-9]+)")
_START_SECONDS = 20.0

File = bytes | tarfile.TarInfo


@dataclass(frozen=True)
class MadeImage:
    """An image's documents and layers. `manifest` may be an index; then `blobs` and `manifests`
    are those of all of its images."""

    manifest: bytes
    media_type: str
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    manifests: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def layers(self) -> list[str]:
        return [layer["digest"] for layer in json.loads(self.manifest)["layers"]]


class Registry:
    """One that runs. `address` is what stands before the first slash of a reference."""

    def __init__(self, port: int, login: bool) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._headers = {}
        if login:
            pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"

    def push(self, repository: str, tag: str, image: MadeImage) -> str:
        """The digest of what the tag then means."""
        for digest, content in image.blobs.items():
            self._put_blob(repository, digest, content)
        for digest, (media_type, content) in image.manifests.items():
            self._put_manifest(repository, digest, media_type, content)
        self._put_manifest(repository, tag, image.media_type, image.manifest)
        return image.digest

    def _put_blob(self, repository: str, digest: str, content: bytes) -> None:
        start = self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"", 202)
        place = start["location"].partition(self.address)[2]
        mark = "&" if "?" in place else "?"
        octets = {"Content-Type": "application/octet-stream"}
        self._ask("PUT", f"{place}{mark}digest={digest}", content, 201, octets)

    def _put_manifest(self, repository: str, name: str, media_type: str, content: bytes) -> None:
        kind = {"Content-Type": media_type}
        self._ask("PUT", f"/v2/{repository}/manifests/{name}", content, 201, kind)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        status: int,
        more: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, {**self._headers, **(more or {})})
            answer = connection.getresponse()
            words = answer.read()
            assert answer.status == status, f"{method} {path}: {answer.status} {words[:500]!r}"
            return {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()


def need_registry() -> str:
    """The program; without it the test is skipped, or fails where MUST_WORK names it."""
    program = shutil.which("docker-registry")
    if program is None:
        reason = "docker-registry is not installed (apt-get install docker-registry)"
        if "docker-registry" in os.environ.get("MUST_WORK", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@contextlib.contextmanager
def running_registry(directory: Path, *, login: bool = False) -> Iterator[Registry]:
    """With `login` nobody gets in but USER with PASSWORD."""
    program = need_registry()
    directory.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(directory / "storage")},
            "delete": {"enabled": True},
        },
        "http": {"addr": "127.0.0.1:0"},
    }
    if login:
        (directory / "htpasswd").write_text(_HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(directory / "htpasswd")}}
    # JSON is YAML.
    (directory / "config.yml").write_text(json.dumps(config))
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", str(directory / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", "/usr/bin"), "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        yield Registry(_port(process, log), login)
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found:
            return int(found.group(1))
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"docker-registry did not start: {log.read_text()[-2000:]}")
        time.sleep(0.02)


def make_layer(files: Mapping[str, File]) -> bytes:
    """A tar: regular files by their content, anything else as the entry it is."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                tar.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return output.getvalue()


def make_image(
    layers: Sequence[bytes],
    *,
    compression: str = "gzip",
    config: Mapping[str, Any] | None = None,
    architecture: str = "amd64",
    docker: bool = False,
) -> MadeImage:
    """Of tars, lowest first. `config` is the inner one: Env, Cmd, …"""
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        "history": [{"created_by": "tests"} for _ in layers],
    }
    packed = [compress(layer, compression) for layer in layers]
    config_bytes = json.dumps(document).encode()
    suffix = {"gzip": "+gzip", "zstd": "+zstd", "none": ""}[compression]
    if docker:
        kinds = (DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER + suffix.replace("+", "."))
    else:
        kinds = (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER + suffix)
    manifest = {
        "schemaVersion": 2,
        "mediaType": kinds[0],
        "config": descriptor(kinds[1], config_bytes),
        "layers": [descriptor(kinds[2], layer) for layer in packed],
    }
    blobs = {digest_of(content): content for content in (config_bytes, *packed)}
    return MadeImage(json.dumps(manifest).encode(), kinds[0], blobs)


def make_index(
    images: Mapping[str, MadeImage], *, docker: bool = False, more: Sequence[Any] = ()
) -> MadeImage:
    """Images by what they are for, as `linux/arm64`. `more`: descriptors besides."""
    entries: list[Any] = []
    for words, image in images.items():
        os_name, architecture, *variant = words.split("/")
        platform = {"os": os_name, "architecture": architecture}
        if variant:
            platform["variant"] = variant[0]
        entries.append({**descriptor(image.media_type, image.manifest), "platform": platform})
    kind = DOCKER_LIST if docker else OCI_INDEX
    document = {"schemaVersion": 2, "mediaType": kind, "manifests": [*entries, *more]}
    blobs: dict[str, bytes] = {}
    manifests: dict[str, tuple[str, bytes]] = {}
    for image in images.values():
        blobs.update(image.blobs)
        manifests.update(image.manifests)
        manifests[image.digest] = (image.media_type, image.manifest)
    return MadeImage(json.dumps(document).encode(), kind, blobs, manifests)


def compress(content: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(content, 1, mtime=0)
    if compression == "zstd":
        from backports import zstd

        return zstd.compress(content)
    return content


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
