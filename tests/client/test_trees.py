"""Directories in and out through the SDK, and what a sandbox can't do to this machine with them."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from agentkernel import AsyncSandbox, Sandbox, errors
from agentkernel.client.tree_copies import TreeDownload, tree_limits
from agentkernel.trees.entries import FileType, Part, TreeEntry, TreeSummary
from agentkernel.trees.tar_writer import TarWriter

pytestmark = pytest.mark.usefixtures("daemon_dir")
WORKERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker"


@pytest.fixture
def sandbox(daemon_dir: Path) -> Iterator[Sandbox]:
    with Sandbox.create(ttl_seconds=900) as sandbox:
        yield sandbox


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
    (root / os.fsdecode(b"\xff odd\n\x1b[31m")).write_bytes(b"odd")
    return root


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


def no_worker_is_left(sandbox: Sandbox) -> None:
    deadline = time.monotonic() + 20
    while sandbox.exec(WORKERS).stdout != "0\n":
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.02)


def test_there_and_back(sandbox: Sandbox, tree: Path, tmp_path: Path) -> None:
    seen: list[TreeSummary] = []
    os.mkfifo(tree / "fifo")
    summary = sandbox.files.upload_tree(tree, "/w/new/place", progress=seen.append)
    (tree / "fifo").unlink()
    assert summary == TreeSummary(9, 1_234_567 + 10 + 3, skipped=1)
    assert seen[-1].bytes == summary.bytes
    back = sandbox.files.download_tree("/w/new/place", tmp_path / "x" / "back")
    assert back == summary._replace(skipped=0)
    assert snapshot(tmp_path / "x" / "back") == snapshot(tree)
    sandbox.files.download_tree("/w/new/place", tmp_path / "x" / "back")
    assert snapshot(tmp_path / "x" / "back") == snapshot(tree)


async def test_there_and_back_with_await(daemon_dir: Path, tree: Path, tmp_path: Path) -> None:
    async with await AsyncSandbox.create() as sandbox:
        summary = await sandbox.files.upload_tree(tree, "/w")
        assert await sandbox.files.download_tree("/w", tmp_path / "back") == summary
        assert snapshot(tmp_path / "back") == snapshot(tree)

        async def pieces() -> Any:
            for _ in range(3):
                yield b"piece"

        assert await sandbox.files.write("/w/streamed", pieces()) == 15
        found = [piece async for piece in sandbox.files.read_stream("/w/streamed", offset=5)]
        assert b"".join(found) == b"piecepiece"
        async with aclosing(sandbox.files.watch("/w")) as changes:
            assert (await anext(changes)).kind == "ready"
            await sandbox.files.write("/w/seen", b"")
            async for change in changes:
                if change.path == "seen":
                    break


def test_links_that_lead_out_are_left_behind(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.exec(
        """mkdir -p /w/d/e; cd /w
        ln -s /etc/passwd absolute; ln -s ../../x up; ln -s .. parent; ln -s d/../.. composed
        ln -s . d/self; ln -s e d/ok; echo in > d/e/f; ln -s d/ok/f fine; mkfifo fifo
        chmod 4755 d/e/f"""
    )
    back = tmp_path / "back"
    summary = sandbox.files.download_tree("/w", back)
    links = {str(path.relative_to(back)) for path in back.rglob("*") if path.is_symlink()}
    assert links == {"d/ok", "fine"}
    assert (summary.refused_links, summary.skipped) == (5, 1)
    assert (back / "fine").read_bytes() == b"in\n"
    assert (back / "d/e/f").stat().st_mode & 0o7777 == 0o755 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_links_here_are_not_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.exec("mkdir -p /w/d; echo evil > /w/g; echo evil > /w/d/f")
    outside, back = tmp_path / "outside", tmp_path / "back"
    outside.mkdir()
    back.mkdir()
    (outside / "g").write_bytes(b"untouched")
    (back / "g").symlink_to(outside / "g")
    (back / "d").symlink_to(outside)
    with pytest.raises(OSError):
        sandbox.files.download_tree("/w", back)
    assert os.listdir(outside) == ["g"] and (outside / "g").read_bytes() == b"untouched"
    sandbox.files.remove("/w/d", recursive=True)
    sandbox.files.download_tree("/w", back)
    assert (back / "g").read_bytes() == b"evil\n" and not (back / "g").is_symlink()
    assert (outside / "g").read_bytes() == b"untouched"


def test_errors_are_the_ones_one_expects(sandbox: Sandbox, tree: Path, tmp_path: Path) -> None:
    files = sandbox.files
    files.write("/w/f", b"", parents=True)
    with pytest.raises(FileNotFoundError):
        files.download_tree("/none", tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        files.download_tree("/w/f", tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        files.upload_tree(tree, "/w/f/x")
    with pytest.raises(FileNotFoundError):
        files.upload_tree(tmp_path / "none", "/w/none")
    with pytest.raises(NotADirectoryError):
        files.upload_tree(tree / "nothing", "/w/none")
    with pytest.raises(errors.GuestFileTooLargeError):
        files.upload_tree(tree, "/w/t", limit_files=3)
    with pytest.raises(errors.GuestFileTooLargeError):
        files.upload_tree(tree, "/w/t", limit_bytes=1_000_000)
    with pytest.raises(errors.InvalidInputError, match="tar archive"):
        files.upload_tar(iter([b"no tar"] * 1000), "/w/t")
    with pytest.raises(errors.GuestFileSpecialError):
        list(files.read_stream("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        next(iter(files.watch("/none")))
    assert not (tmp_path / "none").exists() and not files.exists("/w/none")
    no_worker_is_left(sandbox)


def test_what_fails_midway_is_told(sandbox: Sandbox, tmp_path: Path) -> None:
    """It is known only after the first files were sent."""
    sandbox.exec("mkdir /w; head -c 300000 /dev/urandom > /w/a; truncate -s 1M /w/b")
    with pytest.raises(errors.GuestFileTooLargeError) as caught:
        sandbox.files.download_tree("/w", tmp_path / "back", limit_bytes=500_000)
    assert caught.value.code == "file_too_large"
    assert os.listdir(tmp_path / "back") == ["a"]
    assert (tmp_path / "back" / "a").stat().st_size == 300_000


def test_a_sandbox_that_ends_midway(daemon_dir: Path, tmp_path: Path) -> None:
    sandbox = Sandbox.create(ttl_seconds=900)
    sandbox.exec("mkdir /w; truncate -s 300M /w/a")
    remover = threading.Thread(target=sandbox.remove)

    def once(summary: TreeSummary) -> None:
        if not remover.ident:
            remover.start()
            remover.join(30)

    with pytest.raises(errors.AgentKernelError):
        sandbox.files.download_tree("/w", tmp_path / "back", progress=once)
    assert os.listdir(tmp_path / "back") == []


def test_archives_both_ways(sandbox: Sandbox) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("d/f")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"text"))
    assert sandbox.files.upload_tar(iter([data.getvalue()]), "/w") == TreeSummary(1, 4)
    assert sandbox.files.read("/w/d/f") == "text"
    content = b"".join(sandbox.files.download_tar("/w", prefix="top"))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert [info.name for info in tar] == ["top/d", "top/d/f", "top"]


def test_a_watch(sandbox: Sandbox) -> None:
    sandbox.exec("mkdir -p /w/d")
    with closing(sandbox.files.watch("/w", recursive=True)) as changes:
        assert next(changes).kind == "ready"
        sandbox.exec("cd /w; echo > d/f; mv d/f $(printf '\\377')")
        for kind, path, to in (("create", "d/f", None), ("move", "d/f", "\udcff")):
            while next(changes) != (kind, path, to):
                pass
    no_worker_is_left(sandbox)
    kinds = []
    for change in sandbox.files.watch("/w"):
        kinds.append(change.kind)
        if change.kind == "ready":
            sandbox.exec("rm -r /w")
    assert kinds[0] == "ready"  # and the loop ends by itself


async def test_cancelled_copies_leave_nothing(daemon_dir: Path, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    with (big / "f").open("wb") as file:
        file.truncate(400 << 20)
    descriptors = len(os.listdir("/proc/self/fd"))
    async with await AsyncSandbox.create() as sandbox:
        began = asyncio.Event()

        def tell(summary: TreeSummary) -> None:
            began.set()

        await sandbox.exec("mkdir /w; truncate -s 400M /w/f")
        for work in (
            sandbox.files.upload_tree(big, "/v", progress=tell),
            sandbox.files.download_tree("/w", tmp_path / "back", progress=tell),
        ):
            began.clear()
            task = asyncio.ensure_future(work)
            await asyncio.wait_for(began.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        deadline = time.monotonic() + 20
        while (await sandbox.exec(WORKERS)).stdout != "0\n":
            assert time.monotonic() < deadline, "a worker is still there"
            await asyncio.sleep(0.02)
        assert (await sandbox.exec("ls -A /v")).stdout == ""
        assert os.listdir(tmp_path / "back") == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


def test_a_client_that_is_killed_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.exec("mkdir /w; truncate -s 400M /w/f")
    script = (
        "import os, signal, sys\n"
        "from agentkernel import Sandbox\n"
        "kill = lambda summary: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Sandbox.connect(sys.argv[1]).files.download_tree('/w', sys.argv[2], progress=kill)\n"
    )
    command = [sys.executable, "-c", script, sandbox.id, str(tmp_path / "back")]
    assert subprocess.run(command, timeout=50, check=False).returncode == -9
    no_worker_is_left(sandbox)
    # What it had begun has a name that says so.
    assert [name.endswith(".part") for name in os.listdir(tmp_path / "back")] == [True]


# -- an archive whose every byte is hostile -------------------------------------------------------


def raw(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


SLIPS = {
    "up": raw(member("../escaped", b"x")),
    "up inside": raw(member("a/../../escaped", b"x")),
    "a link, then through it": raw(link("a", ".."), member("a/escaped", b"x")),
    "an absolute link": raw(link("a", "/"), member("a/escaped", b"x")),
    "a link that a file replaces": raw(link("escaped", "../escaped"), member("escaped", b"x")),
    "a link to a link": raw(
        member("d", type=tarfile.DIRTYPE), link("d/up", ".."), link("x", "d/up/.."),
        member("x/escaped", b"x"),
    ),
    "a hard link": raw(link("a", "../secret"), member("b", type=tarfile.LNKTYPE, linkname="a")),
    "a device": raw(member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "a fifo": raw(member("fifo", type=tarfile.FIFOTYPE)),
    # CVE-2025-4517: names longer than realpath resolves.
    "a long way round": raw(
        *(member("/".join(["d" * 247] * i), type=tarfile.DIRTYPE) for i in range(1, 15)),
        link("/".join(["d" * 247] * 14) + "/l", "../" * 14), link("out", "l/../escaped"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SLIPS)
def test_nothing_is_written_outside(case: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    target = tmp_path / "target"
    copy = TreeDownload(target, tree_limits(None, None))
    try:
        with pytest.raises((errors.DaemonError, OSError)):  # none has our own archives' end
            copy.feed(SLIPS[case])
            copy.finish()
    finally:
        copy.close()
    assert sorted(os.listdir(tmp_path)) == ["secret", "target"]
    for path in target.rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        if stat.S_ISLNK(mode):
            assert Path(os.path.realpath(path)).is_relative_to(target)
        assert not path.name.endswith(".part")


@pytest.mark.parametrize("case", ["up", "a link, then through it"])
def test_control_without_the_guard(case: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with tarfile.open(fileobj=io.BytesIO(SLIPS[case])) as tar:
        # By name it can be asked for only since some patch level of 3.11.
        tar.extraction_filter = lambda member, path: member
        tar.extractall(target)
    assert (tmp_path / "escaped").exists()


def packed(parts: list[Part], summary: TreeSummary) -> bytes:
    writer = TarWriter()
    root = TreeEntry(".", FileType.DIRECTORY, mode=0o755)
    return b"".join(map(writer.feed, parts)) + writer.end(root, summary)


def test_the_end_has_to_be_true(tmp_path: Path) -> None:
    parts: list[Part] = [TreeEntry("f", FileType.FILE, 3), b"abc"]
    data = packed(parts, TreeSummary(1, 3, skipped=2))

    def download(content: bytes) -> TreeSummary:
        copy = TreeDownload(tmp_path / "t", tree_limits(None, None))
        try:
            copy.feed(content)
            return copy.finish()
        finally:
            copy.close()

    assert download(data) == TreeSummary(1, 3, skipped=2)
    lies = [packed(parts, TreeSummary(2, 3)), packed(parts, TreeSummary(1, 4)), data[:-1024]]
    for lie in (*lies, data[:600], raw(member("f", b"abc"))):
        with pytest.raises(errors.DaemonError):
            download(lie)
    assert os.listdir(tmp_path / "t") == ["f"]
