"""Trees as tar and back, what other programs make of ours, and archives made to do harm."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.errors import AgentKernelError, GuestFileTooLargeError, InvalidInputError
from agentkernel.trees.entries import FileType, Part, TreeEntry, TreeSummary
from agentkernel.trees.local import TreePacker
from agentkernel.trees.tar_reader import TarReader
from agentkernel.trees.tar_writer import TarWriter

PLENTY = {"limit_bytes": 1 << 40, "limit_files": 10_000}
ROOT = TreeEntry(".", FileType.DIRECTORY, mode=0o755)
LONG = "/".join(["long" * 20] * 5)


def packed(parts: Iterable[Part], prefix: str = "") -> bytes:
    writer = TarWriter(prefix)
    return b"".join(map(writer.feed, parts)) + writer.end(ROOT, TreeSummary(1, 2, 3))


def unpacked(data: bytes, step: int = 1 << 16, **limits: int) -> list[Part]:
    """All parts, the content of a file in one piece."""
    reader = TarReader(**(PLENTY | limits))
    found: list[Part] = []
    for start in range(0, len(data), step):
        for part in reader.feed(data[start : start + step]):
            if isinstance(part, bytes) and isinstance(found[-1], bytes):
                found[-1] += part
            else:
                found.append(part)
    reader.finish()
    return found


def file(path: str, data: bytes = b"", **more: object) -> list[Part]:
    entry = TreeEntry(path, FileType.FILE, len(data), **more)  # type: ignore[arg-type]
    return [entry, data] if data else [entry]


TREE: list[Part] = [
    TreeEntry("d", FileType.DIRECTORY, mode=0o750, mtime_ms=1_600_000_000_000),
    *file("d/f", b"content", mode=0o755, mtime_ms=1_600_000_000_123, uid=1000, gid=3_000_000),
    *file("d/exact", b"x" * 512),
    *file("empty"),
    TreeEntry("link", FileType.LINK, target="../" * 50 + "x"),
    TreeEntry("short", FileType.LINK, target="d/f", mode=0o777),
    *file(LONG, b"long"),
    *file("\udcff odd\n", b"odd", mtime_ms=1 << 61),
    *file("name\N{SNOWMAN}"),
]


@pytest.mark.parametrize("step", [1, 7, 511, 512, 1 << 16])
def test_there_and_back(step: int) -> None:
    wanted = [
        part._replace(mtime_ms=min(part.mtime_ms, 253_402_300_799_000))
        if isinstance(part, TreeEntry)
        else part
        for part in TREE
    ]
    assert unpacked(packed(TREE), step) == wanted


def test_the_summary_is_the_last_thing_said() -> None:
    reader = TarReader(**PLENTY)
    list(reader.feed(packed(TREE)))
    reader.finish()
    assert reader.comment == b"agentkernel-tree files=1 bytes=2 skipped=3"
    assert (reader.summary.files, reader.summary.bytes) == (9, 7 + 512 + 4 + 3)


def test_why_there_is_no_more() -> None:
    writer = TarWriter()
    data = b"".join(map(writer.feed, TREE[:3])) + writer.error(b'{"code": "x"}')
    reader = TarReader(**PLENTY)
    list(reader.feed(data))
    assert reader.comment == b'agentkernel-error {"code": "x"}'
    with pytest.raises(InvalidInputError, match="cut off"):
        reader.finish()
    writer.feed(TREE[1])
    assert writer.error(b"in the middle of a file") == b""


def test_other_programs_read_it(tmp_path: Path) -> None:
    data = packed(TREE, "top")
    done = subprocess.run(
        ["tar", "-C", tmp_path, "--no-same-owner", "--warning=no-timestamp", "-xf", "-"],
        input=data, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "top/d/f").read_bytes() == b"content"
    assert (tmp_path / "top/d/f").stat().st_mtime == pytest.approx(1_600_000_000.123, abs=0.001)
    assert os.readlink(tmp_path / "top/link") == "../" * 50 + "x"
    assert (tmp_path / "top" / LONG).read_bytes() == b"long"
    assert (tmp_path / os.fsdecode(b"top/\xff odd\n")).read_bytes() == b"odd"
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [m.name for m in archive][:2] == ["top/d", "top/d/f"]
        assert archive.getmembers()[-1].pax_headers["comment"].startswith("agentkernel-tree")


@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "pax", "oldgnu"])
def test_archives_of_other_programs(tmp_path: Path, form: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"content")
    (tmp_path / "d" / "f").chmod(0o754)
    (tmp_path / "l").symlink_to("d/f")
    if form != "v7":
        deep = tmp_path / "long" / ("x" * 60) / ("y" * 60)
        deep.mkdir(parents=True)
        (deep / ("z" * 60)).write_bytes(b"far")
    done = subprocess.run(
        ["tar", "-C", tmp_path, f"--format={form}", "-cf", "-", "."],
        capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    found = unpacked(done.stdout, 1000)
    wanted = list(TreePacker(tmp_path, **PLENTY).parts())

    def shape(parts: list[Part]) -> set[object]:
        return {(p.path, p.type, p.size, p.target) for p in parts if isinstance(p, TreeEntry)}

    assert shape(found) == shape(wanted)
    assert {p for p in found if isinstance(p, bytes)} == {p for p in wanted if isinstance(p, bytes)}


# -- made to do harm ------------------------------------------------------------------------------


def member(name: str = "x", data: bytes = b"", **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    head = info.tobuf(tarfile.PAX_FORMAT if info.pax_headers else tarfile.GNU_FORMAT)
    return head + data + bytes(-len(data) % 512)


END = bytes(1024)
BAD: dict[str, Callable[[], bytes]] = {
    "up": lambda: member("../x") + END,
    "up inside": lambda: member("a/../../x") + END,
    "up behind a dot": lambda: member("./../x") + END,
    "absolute": lambda: member("/etc/passwd") + END,
    "root": lambda: member("/", type=tarfile.DIRTYPE) + END,
    "dots": lambda: member("..", type=tarfile.DIRTYPE) + END,
    "twice a slash": lambda: member("a//b") + END,
    "no name": lambda: member("") + END,
    "a dot that is a file": lambda: member(".") + END,
    "long name that leads up": lambda: member("../" * 60 + "x") + END,
    "pax path that leads up": lambda: member("x", pax_headers={"path": "../x"}) + END,
    "long component": lambda: member("x" * 300) + END,
    "long path": lambda: member("x/" * 3000 + "x") + END,
    "endless name": lambda: member("x/" * 50_000) + END,
    "hard link": lambda: member("x", type=tarfile.LNKTYPE, linkname="y") + END,
    "hard link out": lambda: member("x", type=tarfile.LNKTYPE, linkname="/etc/passwd") + END,
    "device": lambda: member("x", type=tarfile.CHRTYPE) + END,
    "block device": lambda: member("x", type=tarfile.BLKTYPE) + END,
    "fifo": lambda: member("x", type=tarfile.FIFOTYPE) + END,
    "gnu sparse": lambda: member("x", type=tarfile.GNUTYPE_SPARSE) + END,
    "pax sparse": lambda: member("x", pax_headers={"GNU.sparse.major": "1"}) + END,
    "unknown type": lambda: member("x", type=b"Z") + END,
    "multi-volume": lambda: member("x", type=b"M") + END,
    "a link without a target": lambda: member("x", type=tarfile.SYMTYPE, linkname="") + END,
    "a directory with content": lambda: member("x", b"1", type=tarfile.DIRTYPE) + END,
    "a link with content": lambda: member("x", b"1", type=tarfile.SYMTYPE, linkname="y") + END,
    "a directory whose size is in pax": lambda: (
        member("x", type=tarfile.DIRTYPE, pax_headers={"size": "512"}) + bytes(512) + END
    ),
    "a negative size": lambda: with_field(124, b"\xff" * 12) + END,
    "a size that is no number": lambda: with_field(124, b"12345678abc\0") + END,
    "a huge size": lambda: with_field(124, b"\x80" + b"\x7f" * 11) + END,
    "a pax size that is none": lambda: member("x", pax_headers={"size": "-5"}) + END,
    "a pax time that is none": lambda: member("x", pax_headers={"mtime": "inf"}) + END,
    "a wrong checksum": lambda: member("x").replace(b"ustar", b"ustaR") + END,
    "pax records that are none": lambda: member("p", b"99 path=x\n", type=b"x") + member() + END,
    "a pax record without end": lambda: member("p", b"7 path=x", type=b"x") + member() + END,
    "huge pax": lambda: member("p", bytes(70_000), type=b"x") + member() + END,
    "many headers": lambda: member("p", b"", type=b"x") * 9 + member() + END,
    "endless global headers": lambda: member("p", b"", type=b"g") * 9 + member() + END,
    "a path for all": lambda: member("p", b"10 path=x\n", type=b"g") + member() + END,
    "no end": lambda: member("x", b"1"),
    "half an end": lambda: member("x", b"1") + bytes(512),
    "cut off in a header": lambda: member("x", b"1")[:400],
    "cut off in content": lambda: member("x", b"1" * 2000)[:1500],
    "names before the end": lambda: member("p", b"10 path=x\n", type=b"x") + END,
    "more behind the end": lambda: member("x") + END + member("y") + END,
    "endless end": lambda: bytes(9 << 20),
    "compressed": lambda: b"\x1f\x8b" + bytes(2000),
    "nothing": lambda: b"",
    "a NUL in a pax path": lambda: member("x", pax_headers={"path": "a\0b"}) + END,
}


def with_field(at: int, value: bytes) -> bytes:
    block = bytearray(member("x"))
    block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("step", [100, 1 << 20])
def test_a_bad_archive_is_a_typed_error(case: str, step: int) -> None:
    with pytest.raises(InvalidInputError):
        unpacked(BAD[case](), step)


def test_control_python_takes_what_is_refused_here(tmp_path: Path) -> None:
    """The cases above are real ones: without a guard the first of them is written outside."""
    target = tmp_path / "deep" / "target"
    target.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(BAD["up"]())) as archive:
        # By name it can be asked for only since some patch level of 3.11.
        archive.extraction_filter = lambda member, path: member
        archive.extractall(target)
    assert (tmp_path / "deep" / "x").exists()


def test_a_pax_size_holds_and_hides_nothing() -> None:
    """Where the header's size is used instead, the content is read as entries of its own."""
    inner = member("hidden", b"evil")
    outer = member("x", inner, pax_headers={"size": str(len(inner))})
    block = bytearray(outer)
    at = len(outer) - len(inner) - 512
    block[at + 124 : at + 136] = b"00000000000\0"
    block[at + 148 : at + 156] = b" " * 8
    block[at + 148 : at + 156] = b"%06o\0 " % sum(block[at : at + 512])
    found = unpacked(bytes(block) + END)
    assert [p.path for p in found if isinstance(p, TreeEntry)] == ["x"]
    assert found[1] == inner


def test_limits() -> None:
    data = packed([*file("a", b"123"), *file("b", b"456")])
    assert len(unpacked(data, limit_bytes=6, limit_files=2)) == 4
    for limits in ({"limit_bytes": 5}, {"limit_files": 1}):
        with pytest.raises(GuestFileTooLargeError):
            unpacked(data, **limits)


@settings(max_examples=300, deadline=None, database=None)
@given(st.data())
def test_no_bytes_do_more_than_fail(data: st.DataObject) -> None:
    """Damaged in any place, an archive is refused or still leads nowhere else."""
    whole = bytearray(packed(TREE[:6]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
        start = at // 512 * 512
        if data.draw(st.booleans()):  # with a checksum that is right again
            block = whole[start : start + 512]
            block[148:156] = b" " * 8
            whole[start + 148 : start + 156] = b"%06o\0 " % sum(block)
    try:
        found = unpacked(bytes(whole), data.draw(st.sampled_from([64, 512, 10_000])))
    except AgentKernelError:
        return
    for part in found:
        if isinstance(part, TreeEntry):
            assert not {"", ".", ".."} & set(part.path.split("/"))
