"""Whole directories in and out, and what a sandbox can't do to the host with them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.errors import (
    GuestDiskFullError,
    GuestFileNotFoundError,
    GuestFileTooLargeError,
    GuestNotADirectoryError,
)
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.trees.entries import FileType, TreeEntry, TreeSummary

Run = Callable[..., Awaitable[ExecResult]]


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            found[name] = "dir"
        else:
            status = path.stat()
            found[name] = (path.read_bytes(), status.st_mode & 0o777, int(status.st_mtime))
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a" / "script").write_bytes(b"#!/bin/sh\n")
    (root / "a" / "script").chmod(0o755)
    (root / "a" / "b" / "blob").write_bytes(os.urandom(1_234_567))
    (root / "nothing").write_bytes(b"")
    os.utime(root / "nothing", (1_600_000_000, 1_600_000_000))
    (root / "link").symlink_to("a/b/blob")
    (root / "a" / "up").symlink_to("../nothing")
    (root / os.fsdecode(b"\xff odd\n")).write_bytes(b"odd")
    return root


async def test_there_and_back(files: GuestFiles, tree: Path, tmp_path: Path) -> None:
    summary = await files.upload_tree(tree, "/w/new/place")
    assert summary == TreeSummary(files=9, bytes=1_234_567 + 10 + 3)
    assert await files.download_tree("/w/new/place", tmp_path / "back") == summary
    assert snapshot(tmp_path / "back") == snapshot(tree)


async def test_again_over_what_is_there(files: GuestFiles, tree: Path, tmp_path: Path) -> None:
    await files.upload_tree(tree, "/w/t")
    (tree / "nothing").write_bytes(b"something")
    await files.write("/w/t/kept", b"kept")
    await files.upload_tree(tree, "/w/t")
    assert await files.read("/w/t/nothing") == b"something"
    assert await files.read("/w/t/kept") == b"kept"
    for _ in range(2):
        await files.download_tree("/w/t", tmp_path / "back")
    (tree / "kept").write_bytes(b"kept")
    back, there = snapshot(tmp_path / "back"), snapshot(tree)
    assert back.keys() == there.keys()


async def test_reading_is_ordered_and_follows_nothing(files: GuestFiles, run: Run) -> None:
    await run("cd /w; mkdir -p b/c a; echo 1 > b/c/f; ln -s / a/root; touch B; mkfifo b/fifo")
    parts = [part async for part in files.tree_read("/w")]
    entries = [(part.path, part.type) for part in parts if isinstance(part, TreeEntry)]
    assert entries == [
        ("B", FileType.FILE),
        ("a", FileType.DIRECTORY),
        ("a/root", FileType.LINK),
        ("b", FileType.DIRECTORY),
        ("b/c", FileType.DIRECTORY),
        ("b/c/f", FileType.FILE),
    ]
    assert parts[-1] == TreeSummary(files=6, bytes=2, skipped=1)


async def test_limits(files: GuestFiles, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(GuestFileTooLargeError):
        await files.upload_tree(tree, "/w/t", limit_bytes=1_000_000)
    with pytest.raises(GuestFileTooLargeError):
        await files.upload_tree(tree, "/w/t", limit_files=8)
    await files.upload_tree(tree, "/w/t", limit_files=9, limit_bytes=1_234_580)
    for limits in ({"limit_bytes": 1_234_579}, {"limit_files": 8}, {"limit_files": 0}):
        with pytest.raises(GuestFileTooLargeError):
            await files.download_tree("/w/t", tmp_path / "back", **limits)
    await files.download_tree("/w/t", tmp_path / "x", limit_files=9, limit_bytes=1_234_580)


async def test_what_came_before_a_failure_is_there(files: GuestFiles, run: Run) -> None:
    await run("cd /w; head -c 300000 /dev/zero > a; truncate -s 1M b")
    size = 0
    with pytest.raises(GuestFileTooLargeError):
        async for part in files.tree_read("/w", limit_bytes=500_000):
            size += len(part) if isinstance(part, bytes) else 0
    assert size == 300_000


async def test_a_file_that_changes_keeps_the_stream_whole(files: GuestFiles, run: Run) -> None:
    await run("cd /w; truncate -s 8M a; echo behind > b")
    content: dict[str, int] = {}
    name = ""
    async for part in files.tree_read("/w"):
        if isinstance(part, TreeEntry):
            name = part.path
            content[name] = 0
        elif isinstance(part, bytes):
            if not content[name]:
                await run("truncate -s 100 /w/a")
            content[name] += len(part)
    assert content == {"a": 8 << 20, "b": 7}


async def test_links_that_lead_out_are_left_behind(
    files: GuestFiles, run: Run, tmp_path: Path
) -> None:
    await run(
        """cd /w; mkdir -p d/e
        ln -s /etc/passwd absolute; ln -s ../../x up; ln -s .. parent; ln -s d/../.. composed
        ln -s . d/self; ln -s d/self/../.. chain; ln -s ../../.. d/e/far; ln -s e d/ok
        ln -s ../.. d/e/root; echo in > d/e/f; ln -s d/ok/f fine"""
    )
    back = tmp_path / "back"
    summary = await files.download_tree("/w", back)
    links = {str(path.relative_to(back)) for path in back.rglob("*") if path.is_symlink()}
    assert links == {"d/ok", "d/e/root", "fine"}
    assert summary.refused_links == 7
    assert (back / "fine").read_bytes() == b"in\n"
    assert (back / "d/e/root").resolve() == back.resolve()


async def test_a_link_on_the_host_is_not_followed(files: GuestFiles, tmp_path: Path) -> None:
    """Even one that was in the directory before the download."""
    await files.write("/w/d/f", b"from the sandbox", parents=True)
    await files.write("/w/g", b"from the sandbox")
    outside, back = tmp_path / "outside", tmp_path / "back"
    outside.mkdir()
    back.mkdir()
    (outside / "g").write_bytes(b"untouched")
    (back / "g").symlink_to(outside / "g")
    (back / "d").symlink_to(outside)
    with pytest.raises(OSError):
        await files.download_tree("/w", back)
    await files.remove("/w/d", recursive=True)
    await files.download_tree("/w", back)
    assert (back / "g").read_bytes() == b"from the sandbox" and not (back / "g").is_symlink()
    assert (outside / "g").read_bytes() == b"untouched"
    assert os.listdir(outside) == ["g"]


async def test_a_tree_too_deep_for_paths(files: GuestFiles, run: Run, tmp_path: Path) -> None:
    deep = "import os\nos.chdir('/w')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    assert (await run(["python3", "-c", deep])).status.exit_code == 0
    with pytest.raises(OSError) as caught:
        async for _ in files.tree_read("/w"):
            pass
    assert getattr(caught.value, "details", {})["errno_name"] == "ENAMETOOLONG"


async def test_what_is_no_tree(files: GuestFiles, tree: Path, tmp_path: Path) -> None:
    await files.write("/w/f", b"")
    with pytest.raises(GuestNotADirectoryError):
        await files.download_tree("/w/f", tmp_path / "back")
    with pytest.raises(GuestFileNotFoundError):
        await files.download_tree("/w/missing", tmp_path / "back")
    with pytest.raises(GuestNotADirectoryError):
        await files.upload_tree(tree, "/w/f/x")
    with pytest.raises(FileNotFoundError):
        await files.upload_tree(tmp_path / "missing", "/w/t")


async def test_a_full_disk_leaves_whole_files(runs: Runs, tmp_path: Path) -> None:
    sandbox = await runs.create(SandboxSpec(disk_bytes=8 << 20))
    files = GuestFiles(sandbox.channel)
    source = tmp_path / "source"
    source.mkdir()
    for i in range(20):
        (source / f"{i:02}").write_bytes(os.urandom(1 << 20))
    with pytest.raises(GuestDiskFullError):
        await files.upload_tree(source, "/w")
    there = await files.list("/w")
    assert 0 < len(there) < 9
    assert all(entry.size == 1 << 20 and len(entry.name) == 2 for entry in there)


async def test_specials_of_the_host_are_not_uploaded(
    files: GuestFiles, tree: Path, tmp_path: Path
) -> None:
    os.mkfifo(tree / "fifo")
    summary = await files.upload_tree(tree, "/w/t")
    assert summary.skipped == 1 and not await files.exists("/w/t/fifo")
