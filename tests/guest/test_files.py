"""One question, one answer: stat, exists, mkdir, move, remove, list; with which rights."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.errors import (
    GuestFileError,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestFilePermissionError,
    GuestFileTooLargeError,
    GuestIsADirectoryError,
    GuestNotADirectoryError,
    InvalidInputError,
)
from agentkernel.guest.file_types import Change, ChangeKind
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.trees.entries import FileType

Run = Callable[..., Awaitable[ExecResult]]


async def names(files: GuestFiles, path: str) -> list[str]:
    return [entry.name for entry in await files.list(path)]


async def test_stat_tells_what_is_there(files: GuestFiles, run: Run) -> None:
    await run("cd /w; printf 12345 > f; chmod 640 f; touch -d @1700000000.25 f; ln -s f l; mkdir d")
    entry = await files.stat("/w/f")
    assert (entry.name, entry.type, entry.size, entry.mode) == ("f", FileType.FILE, 5, 0o640)
    assert entry.mtime_ms == 1_700_000_000_250
    link = await files.stat("/w/l", follow=False)
    assert (link.name, link.type, link.target) == ("l", FileType.LINK, "f")
    followed = await files.stat("/w/l")
    assert (followed.name, followed.type, followed.size) == ("l", FileType.FILE, 5)
    assert (await files.stat("/w/d/")).type is FileType.DIRECTORY
    assert (await files.stat("/")).name == "/"
    assert (await files.stat("/w/..")).name == ".."


async def test_stat_of_every_type(files: GuestFiles, run: Run) -> None:
    await run("mkfifo /w/fifo")
    await run(["python3", "-c", "import socket; socket.socket(socket.AF_UNIX).bind('/w/socket')"])
    types = {entry.name: entry.type for entry in await files.list("/w")}
    assert types == {"fifo": FileType.FIFO, "socket": FileType.SOCKET}
    assert (await files.stat("/dev/null")).type is FileType.CHARACTER_DEVICE


async def test_exists(files: GuestFiles, run: Run) -> None:
    await run("cd /w; touch f; ln -s nowhere dangling; ln -s f l")
    assert await files.exists("/w/f") and await files.exists("/w/l") and await files.exists("/")
    for missing in ("/w/g", "/w/f/g", "/w/dangling", "/nowhere/at/all"):
        assert not await files.exists(missing)


async def test_a_missing_file_is_the_error_one_expects(files: GuestFiles) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        await files.read("/w/nothing")
    error = caught.value
    assert isinstance(error, GuestFileNotFoundError)
    assert error.errno == errno.ENOENT and error.filename == "/w/nothing"
    assert error.details == {"errno_name": "ENOENT", "path": "/w/nothing"}
    assert str(error) == "/w/nothing: No such file or directory"


@pytest.mark.parametrize("path", ["relative", "", "a/../b", "/with\0nul"])
async def test_a_path_has_to_be_absolute(files: GuestFiles, path: str) -> None:
    with pytest.raises(InvalidInputError):
        await files.stat(path)


async def test_mkdir(files: GuestFiles) -> None:
    assert await files.mkdir("/w/a")
    with pytest.raises(GuestFileExistsError):
        await files.mkdir("/w/a")
    assert not await files.mkdir("/w/a", parents=True)
    with pytest.raises(GuestFileNotFoundError):
        await files.mkdir("/w/b/c")
    assert await files.mkdir("/w/b/c/d/", parents=True, mode=0o1777)
    assert (await files.stat("/w/b/c/d")).mode == 0o1777
    assert (await files.stat("/w/b/c")).mode == 0o755
    await files.write("/w/file", b"")
    with pytest.raises(GuestNotADirectoryError):
        await files.mkdir("/w/file/x", parents=True)
    with pytest.raises(GuestFileExistsError):
        await files.mkdir("/")
    with pytest.raises(InvalidInputError):
        await files.mkdir("/w/setuid", mode=0o4755)


async def test_mkdir_goes_through_links(files: GuestFiles, run: Run) -> None:
    await run("mkdir /w/real; ln -s real /w/link; ln -s nowhere /w/dangling")
    await files.mkdir("/w/link/below/it", parents=True)
    assert await files.exists("/w/real/below/it")
    with pytest.raises(GuestFileError):
        await files.mkdir("/w/dangling/below", parents=True)
    assert await names(files, "/w") == ["dangling", "link", "real"]


async def test_move(files: GuestFiles, run: Run) -> None:
    await files.write("/w/a", b"a")
    await files.write("/w/b", b"b")
    with pytest.raises(GuestFileExistsError):
        await files.move("/w/a", "/w/b")
    assert await files.read("/w/b") == b"b"
    await files.move("/w/a", "/w/b", replace=True)
    assert await files.read("/w/b") == b"a" and not await files.exists("/w/a")
    await run("ln -s b /w/link")
    await files.move("/w/link", "/w/moved")
    assert (await files.stat("/w/moved", follow=False)).target == "b"
    await files.mkdir("/w/d")
    await files.move("/w/d", "/w/e")
    with pytest.raises(GuestFileNotFoundError):
        await files.move("/w/d", "/w/f")
    with pytest.raises(GuestFileError):
        await files.move("/", "/w/root")


async def test_remove(files: GuestFiles, run: Run) -> None:
    await run("cd /w; mkdir -p d/e; touch f d/e/g; ln -s /etc d/link; mkfifo d/fifo")
    assert await files.remove("/w/f") == 1
    with pytest.raises(GuestFileError) as caught:
        await files.remove("/w/d")
    assert caught.value.errno == errno.ENOTEMPTY
    assert await files.remove("/w/d", recursive=True) == 5
    assert await names(files, "/w") == []
    assert await files.exists("/etc/passwd")
    with pytest.raises(GuestFileNotFoundError):
        await files.remove("/w/d", recursive=True)
    for root in ("/", "/w/..", "//"):
        with pytest.raises(GuestFileError) as caught:
            await files.remove(root, recursive=True)
        assert caught.value.errno == errno.EBUSY


async def test_remove_takes_a_link_and_not_what_it_leads_to(files: GuestFiles, run: Run) -> None:
    await run("cd /w; mkdir d; touch d/kept; ln -s d link")
    assert await files.remove("/w/link", recursive=True) == 1
    assert await names(files, "/w/d") == ["kept"]


DEEP = """
import os
os.chdir('/w')
for _ in range(10_000):
    os.mkdir('d'); os.chdir('d'); open('f', 'w').close()
"""


@pytest.mark.slow
async def test_a_tree_10_000_deep_is_removed(files: GuestFiles, run: Run) -> None:
    assert (await run(["python3", "-c", DEEP])).status.exit_code == 0
    assert await files.remove("/w/d", recursive=True) == 20_000
    assert await names(files, "/w") == []


async def test_with_few_descriptors(runs: Runs) -> None:
    sandbox = await runs.create(SandboxSpec(nofile=16))
    files = GuestFiles(sandbox.channel)
    for i in range(3):
        await files.write(f"/w/{i}" + "/d" * 30 + "/f", b"deep", parents=True)
    assert len([part async for part in files.tree_read("/w")]) == 3 * 33 + 1
    async with asyncio.timeout(20), aclosing(files.watch("/w", recursive=True)) as changes:
        async for change in changes:
            if change.kind is ChangeKind.READY:
                await files.append("/w/1" + "/d" * 30 + "/f", b"er")
            else:
                break
    assert change == Change(ChangeKind.MODIFY, "1" + "/d" * 30 + "/f")
    assert await files.remove("/w", recursive=True) == 3 * 32 + 1


# -- lists ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_20_000_names_in_pages(files: GuestFiles, run: Run) -> None:
    made = "import os\nfor i in range(20_000): open(f'/w/{i}', 'w').close()"
    assert (await run(["python3", "-c", made])).status.exit_code == 0
    expected = sorted(str(i) for i in range(20_000))
    assert await names(files, "/w") == expected
    behind = [entry.name async for entry in files.iterate("/w", after="9")]
    assert behind == [name for name in expected if name > "9"]
    with pytest.raises(GuestFileTooLargeError):
        await files.list("/w", max_entries=19_999)
    assert len(await files.list("/w", max_entries=20_000)) == 20_000


async def test_what_can_not_be_listed(files: GuestFiles) -> None:
    await files.write("/w/f", b"")
    with pytest.raises(GuestNotADirectoryError):
        await files.list("/w/f")
    with pytest.raises(GuestFileNotFoundError):
        await files.list("/w/missing")
    with pytest.raises(GuestIsADirectoryError):
        await files.read("/w")
    with pytest.raises(GuestIsADirectoryError):
        await files.write("/w", b"")
    with pytest.raises(GuestIsADirectoryError):
        await files.write("/", b"")


# -- users ----------------------------------------------------------------------------------------


async def test_a_user_may_what_the_user_may(files: GuestFiles, run: Run, sandbox: Sandbox) -> None:
    if (await run("chown 1000:1000 /w")).status.exit_code:
        pytest.skip("there is one id in this sandbox")
    theirs = GuestFiles(sandbox.channel, user="user")
    await theirs.write("/w/f", b"mine")
    entry = await theirs.stat("/w/f")
    assert (entry.uid, entry.gid) == (1000, 1000)
    await files.write("/root/secret", b"", mode=0o600)
    await files.mkdir("/closed", mode=0o700)
    for attempt in (
        theirs.read("/root/secret"),
        theirs.write("/etc/new", b""),
        theirs.write("/etc/passwd", b""),
        theirs.append("/etc/passwd", b"x"),
        theirs.remove("/etc/passwd"),
        theirs.mkdir("/etc/d"),
        theirs.move("/w/f", "/etc/f"),
        theirs.list("/closed"),
        theirs.stat("/closed/x"),
    ):
        with pytest.raises(PermissionError) as caught:
            await attempt
        assert isinstance(caught.value, GuestFilePermissionError)
    with pytest.raises(PermissionError):
        async for _ in theirs.watch("/closed", recursive=True):
            pass


async def test_a_link_in_a_shared_directory_is_not_followed_for_others(
    files: GuestFiles, run: Run, sandbox: Sandbox
) -> None:
    """What fs.protected_symlinks holds for open has to hold for our way of writing."""
    made = await run(
        "mkdir -m 1777 /w/tmp; echo safe > /w/target; ln -s /w/target /w/tmp/link;"
        "chown -h 1000:1000 /w/tmp/link"
    )
    if made.status.exit_code:
        pytest.skip("there is one id in this sandbox")
    with pytest.raises(GuestFilePermissionError):
        await files.write("/w/tmp/link", b"overwritten by root")
    with pytest.raises(GuestFilePermissionError):
        await files.append("/w/tmp/link", b"overwritten by root")
    assert await files.read("/w/target") == b"safe\n"


async def test_no_such_user(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidInputError):
        await GuestFiles(sandbox.channel, user="nobody-has-this-name").stat("/")
