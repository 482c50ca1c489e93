"""Archives made by hand, header by header, and a place to unpack them in."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agentkernel.backends.local import idmaps
from agentkernel.backends.local.layer_worker import LocalLayerWorker
from agentkernel.errors import HostError
from agentkernel.images.oci.work import LAYER_LIMITS, LayerLimits, Unpacked

FILE, HARD_LINK, SYMLINK, CHAR, BLOCK, DIRECTORY, FIFO = (b"%d" % n for n in range(7))


class Archive:
    """Says whatever it is told to say, true or not."""

    def __init__(self) -> None:
        self.data = b""

    def add(
        self,
        name: str | bytes,
        content: bytes = b"",
        *,
        kind: bytes = FILE,
        mode: int | None = None,
        owner: tuple[int, int] = (0, 0),
        mtime: int = 0,
        link: str | bytes = b"",
        size: int | None = None,
        pax: Mapping[str, str | bytes] | None = None,
        device: tuple[int, int] = (0, 0),
    ) -> Archive:
        if pax:
            self.raw(b"pax", b"x", _records(pax))
        name, link = os.fsencode(name), os.fsencode(link)
        if mode is None:
            mode = 0o755 if kind == DIRECTORY else 0o644
        if len(name) > 100:
            self.raw(b"long", b"L", name + b"\0")
        if len(link) > 100:
            self.raw(b"long", b"K", link + b"\0")
        self.data += header(name, kind, len(content) if size is None else size, mode, owner, mtime,
                            link, device)  # fmt: skip
        self.data += content + b"\0" * (-len(content) % 512)
        return self

    def raw(self, name: bytes, kind: bytes, content: bytes) -> None:
        self.data += header(name, kind, len(content)) + content + b"\0" * (-len(content) % 512)

    def done(self) -> bytes:
        return self.data + b"\0" * 1024


def header(
    name: bytes,
    kind: bytes,
    size: int,
    mode: int = 0o644,
    owner: tuple[int, int] = (0, 0),
    mtime: int = 0,
    link: bytes = b"",
    device: tuple[int, int] = (0, 0),
) -> bytes:
    block = bytearray(512)

    def put(at: int, text: bytes) -> None:
        block[at : at + len(text)] = text

    put(0, name[:100])
    put(100, b"%07o" % mode)
    put(108, number(owner[0], 8))
    put(116, number(owner[1], 8))
    put(124, number(size, 12))
    put(136, number(mtime, 12))
    put(156, kind)
    put(157, link[:100])
    put(257, b"ustar\00000")
    put(329, b"%07o" % device[0])
    put(337, b"%07o" % device[1])
    return sealed(bytes(block))


def sealed(block: bytes) -> bytes:
    """With the checksum that belongs to it."""
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]


def number(value: int, size: int) -> bytes:
    """Octal, or in base 256 where that is too short."""
    if 0 <= value < 8 ** (size - 1):
        return b"%0*o" % (size - 1, value)
    return (value + (1 << (8 * size - 1)) if value >= 0 else value + (1 << 8 * size)).to_bytes(
        size, "big"
    )


def _records(pax: Mapping[str, str | bytes]) -> bytes:
    whole = b""
    for key, value in pax.items():
        rest = b" " + os.fsencode(key) + b"=" + os.fsencode(value) + b"\n"
        length = len(rest)
        while len(str(length)) + len(rest) != length:
            length = len(str(length)) + len(rest)
        whole += b"%d" % length + rest
    return whole


def diff_id(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def zstd_compress(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(data)


class Bench:
    """A worker, and a directory beside which something may be planted."""

    def __init__(self, worker: LocalLayerWorker, mode: str, top: Path) -> None:
        self.worker, self.mode, self.top = worker, mode, top
        self.layer = top / "layer"
        self.layer.mkdir()

    def unpack(
        self,
        data: bytes,
        *,
        blob: bytes | None = None,
        name: str | None = None,
        limits: LayerLimits = LAYER_LIMITS,
    ) -> Unpacked:
        """`blob`: the compressed form; `name`: another digest than the content's."""
        path = self.top / "blob"
        path.write_bytes(data if blob is None else blob)
        return self.worker.unpack(
            str(path), name or diff_id(data), str(self.layer), limits=limits, sync=False
        )

    def again(self) -> Path:
        """An empty directory once more."""
        self.worker.remove(str(self.layer))
        self.layer.mkdir()
        return self.layer

    def packed(self, **more: object) -> bytes:
        output = io.BytesIO()
        result = self.worker.pack(str(self.layer), output, **more)  # type: ignore[arg-type]
        assert (result.diff_id, result.size) == (diff_id(output.getvalue()), len(output.getvalue()))
        return output.getvalue()

    def members(self) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.packed())) as archive:
            return {member.name: member for member in archive}

    def content(self, name: str) -> bytes:
        """Also of a file that only the namespace's root can read."""
        with tarfile.open(fileobj=io.BytesIO(self.packed())) as archive:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

    def tree(self) -> dict[str, str]:
        """Every path with what it is: type and mode, and where a link leads."""
        found = {}
        for directory, directories, files in os.walk(self.layer):
            for name in [*directories, *files]:
                path = os.path.join(directory, name)
                info = os.lstat(path)
                words = stat.filemode(info.st_mode)
                if stat.S_ISLNK(info.st_mode):
                    words = f"-> {os.readlink(path)}"
                elif stat.S_ISCHR(info.st_mode):
                    words = f"device {os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
                found[os.path.relpath(path, self.layer)] = words
        return found


def kinds_of_ids() -> list[str]:
    """The ids of whoever runs the tests; and, as root, those of a user that has only one."""
    return ["own", "single"] if idmaps.is_host_root() else ["own"]


_tried: dict[str, str] = {}


def _why_not(bench: Bench) -> str:
    """Tried once for each kind of ids: does the machine allow it at all?"""
    if bench.mode not in _tried:
        try:
            bench.unpack(Archive().done())
            _tried[bench.mode] = ""
        except HostError as error:
            _tried[bench.mode] = error.message
        bench.again()
    return _tried[bench.mode]


@contextlib.contextmanager
def bench_in(top: Path, ids: str) -> Iterator[Bench]:
    maps = idmaps.single_maps(0) if ids == "single" else idmaps.own_maps()
    bench = Bench(LocalLayerWorker(maps), maps.mode, top)
    if why := _why_not(bench):
        pytest.skip(f"no layer can be unpacked here: {why}")
    try:
        yield bench
    finally:
        bench.worker.remove(str(bench.layer))
