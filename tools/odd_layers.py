"""Layers with everything that layers are known to have, as tar files, for comparing unpackers.

    layers(directory, files=200_000)     four archives, lowest first

Left out is only what those who unpack are known to disagree on: a layer that lacks the parents of
its entries, or that writes through a link of a lower layer (docs/reference/layers.md). Docker
refuses the fourth, which has names twice.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

Add = Callable[..., None]
_TIME = 1_600_000_000


def layers(directory: Path, files: int) -> list[Path]:
    makers: list[Callable[[Add], None]] = [
        lambda add: _base(add, files),
        _changes,
        _whiteouts,
        _odd_orders,
    ]
    paths = []
    for number, make in enumerate(makers):
        path = directory / f"{number}.tar"
        form = tarfile.GNU_FORMAT if number == 1 else tarfile.PAX_FORMAT
        with tarfile.open(path, "w", format=form) as archive:
            make(_adder(archive))
        paths.append(path)
    return paths


def _adder(archive: tarfile.TarFile) -> Add:
    def add(name: str, content: bytes = b"", *, kind: str = "file", **fields: object) -> None:
        member = tarfile.TarInfo(name)
        member.type = {
            "file": tarfile.REGTYPE,
            "directory": tarfile.DIRTYPE,
            "link": tarfile.SYMTYPE,
            "hard": tarfile.LNKTYPE,
            "pipe": tarfile.FIFOTYPE,
        }[kind]
        member.size = len(content)
        member.mode = 0o755 if kind == "directory" else 0o777 if kind == "link" else 0o644
        member.mtime = _TIME
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member, io.BytesIO(content))

    return add


def _base(add: Add, files: int) -> None:
    for name in ("etc", "usr", "usr/bin", "usr/lib", "home", "home/user", "gone", "gone/deep"):
        add(name, kind="directory", mtime=_TIME + len(name))
    add("tmp", kind="directory", mode=0o1777)
    add("etc/passwd", b"root:x:0:0::/:/bin/sh\n")
    add("etc/shadow", b"root:*:::::::\n", mode=0o640, gid=42)
    add("usr/bin/su", b"\x7fELF", mode=0o4755)
    add("usr/bin/wall", b"\x7fELF", mode=0o2755, gid=5)
    add("usr/bin/sudo", b"\x7fELF", mode=0o6711)
    add("lib", kind="link", linkname="usr/lib")
    add("absolute", kind="link", linkname="/usr/lib")
    add("dangling", kind="link", linkname="no/such/place", mtime=_TIME + 7)
    add("home/user/mine", b"x" * 10_000, uid=1000, gid=1000, mode=0o600)
    add("home/user/far", b"far", uid=65_535, gid=65_534)
    add("pipe", kind="pipe", mode=0o620, gid=5)
    for name in ("a", "b", "c"):
        add(f"gone/{name}", name.encode())
        add(f"gone/deep/{name}", name.encode())
    add("opaque", kind="directory", mode=0o700, uid=33)
    add("opaque/old", b"1")
    add("opaque/kept-name", b"old")
    for number in range(4):
        add(f"becomes-{number}", b"file") if number % 2 else add(
            f"becomes-{number}", kind="directory"
        )
    add("becomes-0/inside", b"1")
    add("becomes-2/inside", b"1")
    add("first", b"shared", mtime=_TIME - 5)
    add("usr/second", kind="hard", linkname="first", mtime=_TIME - 5)
    add("usr/bin/third", kind="hard", linkname="first", mtime=_TIME - 5)
    add("n" * 255, b"long name")
    deep = "/".join(["p" * 200] * 12)
    for depth in range(1, 13):
        add("/".join(["p" * 200] * depth), kind="directory")
    add(f"{deep}/file", b"deep")
    add(f"{deep}/link", kind="link", linkname="../" * 400 + "x")
    add("ünïcödé ☃", b"1")
    add("line\nbreak\ttab", b"1")
    add(" blank ", b"1")
    add("words", b"1", pax_headers={"SCHILY.xattr.user.word": "value", "mtime": "1600000000.25"})
    add("wordy", kind="directory", pax_headers={"SCHILY.xattr.user.word": "of a directory"})
    add("sparse", b"\0" * 300_000 + b"end")
    add("many", kind="directory")
    for number in range(files):
        if number % 500 == 0:
            add(f"many/{number // 500}", kind="directory", mtime=_TIME + number)
        add(
            f"many/{number // 500}/{number}",
            b"%d" % number * (number % 9),
            mtime=_TIME + number,
            mode=0o600 + number % 64,
            uid=number % 7,
        )


def _changes(add: Add) -> None:
    """In GNU's form, as older tools write."""
    for name in ("etc", "usr", "usr/bin"):
        add(f"./{name}/", kind="directory", mtime=_TIME + 100)
    add("./etc/passwd", b"changed\n", mtime=_TIME + 101)
    add("./usr/bin/su", b"\x7fELF2", mode=0o755)
    add("./lib", kind="link", linkname="usr/lib64")
    add("./first", b"now alone")
    add("./becomes-0", b"a file now")
    add("./becomes-1/", kind="directory", mode=0o711)
    add("./becomes-1/inside", b"new")
    add("./becomes-2", kind="link", linkname="etc")
    add("./becomes-3", kind="pipe")
    add("./usr/" + "q" * 180, b"long, in GNU's way", uid=3_000_000 % 60_000)
    add("./usr/to-long", kind="link", linkname="r" * 180)
    add("./usr/hard-long", kind="hard", linkname="./usr/" + "q" * 180)


def _whiteouts(add: Add) -> None:
    add("gone", kind="directory", mtime=_TIME + 200)
    add("gone/.wh.a")
    add("gone/.wh.deep")
    add("gone/.wh.never-was")
    add(".wh.pipe")
    add(".wh.dangling")
    add("usr", kind="directory")
    add("usr/.wh.second")
    add("opaque", kind="directory", mode=0o750)
    add("opaque/kept-name", b"new, before the mark")
    add("opaque/.wh..wh..opq")
    add("opaque/after", b"new, after the mark")
    add("opaque/sub", kind="directory")
    add("opaque/sub/file", b"1")
    add("many", kind="directory")
    add("many/.wh.0")
    add("many/1", kind="directory", mtime=_TIME)
    add("many/1/.wh..wh..opq")


def _odd_orders(add: Add) -> None:
    """The same names twice in one layer, and whiteouts of what the layer itself has."""
    add("etc", kind="directory")
    add("etc/passwd", b"once")
    add("etc/passwd", b"twice", mode=0o600)
    add("etc/.wh.shadow")
    add("etc/shadow", b"new", mode=0o600)
    add("home", kind="directory")
    add("home/user", kind="directory", uid=1000, mtime=_TIME + 300)
    add("home/user/mine", b"written before it is hidden")
    add("home/user/.wh.mine")
    add(".wh.gone")
    add("gone", kind="directory", mode=0o701)
    add("gone/again", b"1")
    add("wordy", b"a file now")
    add("link-first", kind="link", linkname="etc")
    add("link-first", b"a file now")
    add("one", b"content")
    add("two", kind="hard", linkname="one")
    add("three", kind="hard", linkname="two")
    add("four", kind="link", linkname="one")
    add("five", kind="hard", linkname="four")


def config_of(paths: list[Path]) -> bytes:
    """The config of an image of those layers."""
    digests = [f"sha256:{sha256(path.read_bytes()).hexdigest()}" for path in paths]
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/none"]},
            "rootfs": {"type": "layers", "diff_ids": digests},
            "history": [{"created_by": path.name} for path in paths],
        }
    ).encode()


def write_layout(directory: Path, paths: list[Path], tag: str) -> None:
    """An OCI layout, its layers as they are."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes, kind: str) -> dict[str, object]:
        digest = sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    layer = "application/vnd.oci.image.layer.v1.tar"
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(config_of(paths), "application/vnd.oci.image.config.v1+json"),
        "layers": [put(path.read_bytes(), layer) for path in paths],
    }
    named = put(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    named["annotations"] = {"org.opencontainers.image.ref.name": tag}
    named["platform"] = {"architecture": "amd64", "os": "linux"}
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))


def write_docker_archive(target: Path, paths: list[Path], tag: str) -> None:
    """What `docker save` would write."""
    config = config_of(paths)
    name = f"{sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": [path.name for path in paths]}]
    with tarfile.open(target, "w") as archive:
        for path in paths:
            archive.add(path, path.name)
        for entry, content in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(entry)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
