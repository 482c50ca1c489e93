"""Whatever a tree from a sandbox holds, nothing is written outside, and no link leads there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.errors import GuestFileTooLargeError, GuestProtocolError, InvalidInputError
from agentkernel.trees.entries import FileType, Part, TreeEntry
from agentkernel.trees.local import TreePacker, TreeUnpacker, leads_inside

PLENTY = {"limit_bytes": 1 << 30, "limit_files": 10_000}


def entry(path: str, kind: FileType, size: int = 0, **more: object) -> TreeEntry:
    return TreeEntry(path, kind, size, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "depth", "inside"),
    [
        (b"a", 0, True),
        (b"a/b", 0, True),
        (b"..", 0, False),
        (b"..", 1, True),
        (b"../..", 1, False),
        (b"../a", 1, True),
        (b"a/..", 5, False),
        (b"../a/../b", 5, False),
        (b"/etc", 5, False),
        (b"", 5, False),
        (b".", 5, False),
        (b"a/./b", 5, False),
        (b"a//b", 5, False),
    ],
)
def test_targets(target: bytes, depth: int, inside: bool) -> None:
    assert leads_inside(target, depth) is inside


names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
targets = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=5).map(
    "/".join
)
entries = st.one_of(
    st.builds(lambda p: entry(p, FileType.DIRECTORY), paths),
    st.builds(lambda p: entry(p, FileType.FILE), paths),
    st.builds(lambda p, t: entry(p, FileType.LINK, target=t), paths, targets),
)


@settings(max_examples=300, deadline=None, database=None)
@given(st.lists(entries, max_size=12))
def test_no_tree_gets_out(tree: list[TreeEntry]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "outer" / "root"
        root.mkdir(parents=True)
        unpacker = TreeUnpacker(root, **PLENTY)
        for part in tree:
            try:
                unpacker.feed(part)
            except OSError:
                continue  # a file where a directory is wanted, and the like
        unpacker.close()
        assert os.listdir(root.parent) == ["root"] and os.listdir(name) == ["outer"]
        for path in root.rglob("*"):
            if path.is_symlink():
                real = os.path.realpath(path)
                assert os.path.commonpath([real, root]) == str(root), os.readlink(path)


def test_limits_and_what_is_left(tmp_path: Path) -> None:
    unpacker = TreeUnpacker(tmp_path, limit_bytes=10, limit_files=2)
    unpacker.feed(entry("whole", FileType.FILE, 4))
    unpacker.feed(b"1234")
    with pytest.raises(GuestFileTooLargeError):
        unpacker.feed(entry("large", FileType.FILE, 7))
    with pytest.raises(GuestFileTooLargeError):
        unpacker.feed(entry("third", FileType.DIRECTORY))
    unpacker.close()
    assert os.listdir(tmp_path) == ["whole"]

    unpacker = TreeUnpacker(tmp_path, **PLENTY)
    unpacker.feed(entry("half", FileType.FILE, 4))
    unpacker.feed(b"12")
    with pytest.raises(GuestProtocolError):
        unpacker.feed(b"345")
    unpacker.close()
    assert os.listdir(tmp_path) == ["whole"]


def test_bits_that_give_rights_are_dropped(tmp_path: Path) -> None:
    unpacker = TreeUnpacker(tmp_path, **PLENTY)
    unpacker.feed(entry("f", FileType.FILE, mode=0o6755))
    unpacker.feed(entry("d", FileType.DIRECTORY, mode=0o7000))
    unpacker.close()
    assert (tmp_path / "f").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "d").stat().st_mode & 0o7700 == 0o700


def test_a_packed_tree_is_ordered_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z").write_bytes(b"zz")
    (tmp_path / "a").symlink_to("/etc")
    os.mkfifo(tmp_path / "fifo")
    packer = TreePacker(tmp_path, **PLENTY)
    found: list[Part] = list(packer.parts())
    assert [part if isinstance(part, bytes) else part.path for part in found] == [
        "a", "b", "b/z", b"zz",
    ]  # fmt: skip
    assert (packer.summary.files, packer.summary.bytes, packer.summary.skipped) == (3, 2, 1)
    for limits in ({"limit_bytes": 1, "limit_files": 9}, {"limit_bytes": 9, "limit_files": 2}):
        with pytest.raises(GuestFileTooLargeError):
            list(TreePacker(tmp_path, **limits).parts())


def test_a_directory_that_is_too_deep(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(210):
        path = path / "d"
        path.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidInputError):
        list(TreePacker(tmp_path, **PLENTY).parts())
    assert len(os.listdir("/proc/self/fd")) == before
