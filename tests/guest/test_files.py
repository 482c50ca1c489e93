"""Every file operation does what docs/reference/guest-protocol.md says of it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.errors import (
    GuestDiskFullError,
    GuestFileError,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestFilePermissionError,
    GuestFileTooLargeError,
    GuestIsADirectoryError,
    GuestNotADirectoryError,
    InvalidInputError,
)
from agentkernel.guest.file_types import Change, ChangeKind, FileType
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

Run = Callable[..., Awaitable[ExecResult]]


async def names(files: GuestFiles, path: str) -> list[str]:
    return [entry.name for entry in await files.list(path)]


# -- stat, exists, mkdir, move, remove -----------------------------------------------------------


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


# -- content --------------------------------------------------------------------------------------


async def test_20_megabytes_there_and_back(files: GuestFiles, run: Run) -> None:
    data = os.urandom(20_000_001)
    assert await files.write("/w/blob", data) == len(data)
    digest = hashlib.sha256(data).hexdigest()
    assert (await run("sha256sum < /w/blob")).stdout.split()[0].decode() == digest
    assert hashlib.sha256(await files.read("/w/blob")).hexdigest() == digest


async def test_an_empty_file(files: GuestFiles) -> None:
    assert await files.write("/w/empty", b"") == 0
    assert await files.read("/w/empty") == b""


async def test_names_that_are_not_text(files: GuestFiles, run: Run) -> None:
    name = "/w/\udcff\udcfe\n\x1b[0m é"
    await files.write(name, b"odd")
    assert (await run("cat /w/*")).stdout == b"odd"
    assert await files.read(name) == b"odd"
    assert [entry.name for entry in await files.list("/w")] == [name[3:]]
    with pytest.raises(GuestFileNotFoundError) as caught:
        await files.read(name + "x")
    assert caught.value.details["path"] == "/w/\\xff\\xfe\n\x1b[0m éx"
    assert await files.stat("/w")


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 0, b""),
        (8, 100, b"89"),
        (10, None, b""),
        (1 << 40, 5, b""),
    ],
)
async def test_ranges(files: GuestFiles, offset: int, length: int | None, expected: bytes) -> None:
    await files.write("/w/f", b"0123456789")
    assert await files.read("/w/f", offset=offset, length=length) == expected


async def test_max_bytes(files: GuestFiles) -> None:
    await files.write("/w/f", bytes(1000))
    assert len(await files.read("/w/f", max_bytes=1000)) == 1000
    with pytest.raises(GuestFileTooLargeError):
        await files.read("/w/f", max_bytes=999)
    assert len(await files.read("/w/f", length=10, max_bytes=10)) == 10
    with pytest.raises(GuestFileTooLargeError):
        await files.read("/w/f", length=11, max_bytes=10)


async def test_a_huge_sparse_file_is_bounded(files: GuestFiles, run: Run) -> None:
    await run("truncate -s 1T /w/sparse")
    with pytest.raises(GuestFileTooLargeError):
        await files.read("/w/sparse", max_bytes=1 << 20)
    assert await files.read("/w/sparse", offset=1 << 39, length=3) == bytes(3)


async def test_a_file_that_grows_is_read_to_the_size_it_had(files: GuestFiles, run: Run) -> None:
    await files.write("/w/log", bytes(1 << 21))
    received = 0
    async for piece in files.read_stream("/w/log"):
        if not received:
            await run("head -c 1000000 /dev/zero >> /w/log")
        received += len(piece)
    assert received == 1 << 21


async def test_a_file_that_shrinks_is_no_failure(files: GuestFiles, run: Run) -> None:
    await files.write("/w/log", bytes(4 << 20))
    received = 0
    async for piece in files.read_stream("/w/log"):
        if not received:
            await run("truncate -s 0 /w/log")
        received += len(piece)
    assert 0 < received < 4 << 20


@pytest.mark.slow
async def test_a_slow_reader_holds_a_window_and_not_the_file(files: GuestFiles, run: Run) -> None:
    size = 200 << 20
    await run(f"truncate -s {size} /w/big")
    received = pieces = 0
    tracemalloc.start()
    try:
        async for piece in files.read_stream("/w/big"):
            received += len(piece)
            pieces += 1
            if pieces % 200 == 0:
                await asyncio.sleep(0.02)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received == size
    assert peak < 16 << 20


async def test_a_reader_that_stops_ends_the_worker(
    files: GuestFiles, run: Run, sandbox: Sandbox
) -> None:
    await run("truncate -s 1G /w/big")
    async with aclosing(files.read_stream("/w/big")) as pieces:
        async for _ in pieces:
            break
    await no_worker_is_left(run)
    assert await files.exists("/w/big")


WORKERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker"


async def no_worker_is_left(run: Run) -> None:
    deadline = time.monotonic() + 5
    while (await run(WORKERS)).stdout.strip() != b"0":
        assert time.monotonic() < deadline, "a worker is still there"
        await asyncio.sleep(0.02)


async def test_modes_and_owners_are_kept(files: GuestFiles, run: Run, sandbox: Sandbox) -> None:
    await files.write("/w/new", b"")
    assert (await files.stat("/w/new")).mode == 0o644
    await files.write("/w/private", b"", mode=0o600)
    await files.write("/w/private", b"again")
    assert (await files.stat("/w/private")).mode == 0o600
    await files.write("/w/private", b"", mode=0o666)
    assert (await files.stat("/w/private")).mode == 0o666
    await run("touch /w/setuid; chmod 6755 /w/setuid")
    await files.write("/w/setuid", b"other content")
    assert (await files.stat("/w/setuid")).mode == 0o755
    if (await run("touch /w/theirs; chown 1000:1000 /w/theirs")).status.exit_code == 0:
        await files.write("/w/theirs", b"by root")
        theirs = await files.stat("/w/theirs")
        assert (theirs.uid, theirs.gid) == (1000, 1000)


async def test_parents(files: GuestFiles) -> None:
    with pytest.raises(GuestFileNotFoundError):
        await files.write("/w/a/b/c", b"")
    await files.write("/w/a/b/c", b"deep", parents=True)
    assert await files.read("/w/a/b/c") == b"deep"


async def test_writing_goes_through_a_link(files: GuestFiles, run: Run) -> None:
    await run("cd /w; echo old > target; ln -s target link; ln -s later dangling; ln -s loop loop")
    await files.write("/w/link", b"new")
    assert await files.read("/w/target") == b"new"
    assert (await files.stat("/w/link", follow=False)).type is FileType.LINK
    await files.write("/w/dangling", b"made")
    assert await files.read("/w/later") == b"made"
    with pytest.raises(GuestFileError) as caught:
        await files.write("/w/loop", b"")
    assert caught.value.errno == errno.ELOOP


async def test_append(files: GuestFiles) -> None:
    assert await files.append("/w/log", b"one ", mode=0o640) == 4
    assert await files.append("/w/log", b"two") == 7
    assert await files.read("/w/log") == b"one two"
    assert (await files.stat("/w/log")).mode == 0o640
    await asyncio.gather(*(files.append("/w/many", b"%04d\n" % i) for i in range(20)))
    lines = sorted((await files.read("/w/many")).split())
    assert lines == [b"%04d" % i for i in range(20)]


async def pieces_of(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def test_writing_from_a_stream(files: GuestFiles) -> None:
    data = os.urandom(3_000_000)
    assert await files.write("/w/f", pieces_of(data, 77_777)) == len(data)
    assert await files.read("/w/f") == data


# -- whole or not at all --------------------------------------------------------------------------

LOOK = """
import sys
torn = looks = 0
while not (torn and sys.argv[1:] == ['until-torn']):
    try: data = open('/w/f', 'rb').read()
    except FileNotFoundError: break
    if not looks: open('/w/looking', 'w').close()
    looks += 1
    torn += len(data) != 1 << 20 or data != data[:1] * len(data)
print(torn, looks)
"""


async def test_a_reader_never_sees_half_a_file(files: GuestFiles, run: Run) -> None:
    await files.write("/w/f", bytes(1 << 20))
    reader = asyncio.ensure_future(run(["python3", "-c", LOOK]))
    while not await files.exists("/w/looking"):
        pass
    for i in range(40):
        await files.write("/w/f", bytes([i]) * (1 << 20))
    await files.remove("/w/f")
    torn, looks = map(int, (await reader).stdout.split())
    assert torn == 0 and looks > 0


WRITE_IN_PLACE = """
import itertools, os
for i in itertools.count():
    if os.path.exists('/w/stop'): break
    with open('/w/f', 'r+b') as f: f.write(bytes([i % 256]) * (1 << 20))
"""


async def test_control_a_reader_sees_a_file_written_in_place(files: GuestFiles, run: Run) -> None:
    await files.write("/w/f", bytes(1 << 20))
    writer = asyncio.ensure_future(run(["python3", "-c", WRITE_IN_PLACE]))
    result = await run(["python3", "-c", LOOK, "until-torn"])
    assert result.stdout.startswith(b"1 "), result
    await files.write("/w/stop", b"")
    assert (await writer).status.exit_code == 0


class Broken(Exception):
    pass


async def broken_pieces() -> AsyncIterator[bytes]:
    yield bytes(1 << 20)
    yield bytes(1 << 20)
    raise Broken


async def test_a_source_that_fails_leaves_nothing(files: GuestFiles, run: Run) -> None:
    await files.write("/w/old", b"old")
    for path in ("/w/old", "/w/new"):
        with pytest.raises(Broken):
            await files.write(path, broken_pieces())
    await no_worker_is_left(run)
    assert await names(files, "/w") == ["old"]
    assert await files.read("/w/old") == b"old"


async def test_a_cancelled_writer_leaves_nothing(files: GuestFiles, run: Run) -> None:
    started = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)
            started.set()
            await asyncio.sleep(0.01)

    task = asyncio.ensure_future(files.write("/w/f", endless()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await no_worker_is_left(run)
    assert await names(files, "/w") == []


@pytest.mark.parametrize("old", [None, b"old content"])
async def test_a_full_disk(runs: Runs, old: bytes | None) -> None:
    sandbox = await runs.create(SandboxSpec(disk_bytes=8 << 20))
    files = GuestFiles(sandbox.channel)
    await files.mkdir("/w")
    if old is not None:
        await files.write("/w/f", old)
    with pytest.raises(GuestDiskFullError) as caught:
        await files.write("/w/f", os.urandom(20 << 20))
    assert caught.value.errno == errno.ENOSPC
    assert await names(files, "/w") == ([] if old is None else ["f"])
    assert await files.write("/w/small", b"fits") == 4
    if old is not None:
        assert await files.read("/w/f") == old


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


# -- watches --------------------------------------------------------------------------------------


async def changes_until(
    files: GuestFiles, path: str, recursive: bool, act: Callable[[], Awaitable[object]], last: str
) -> list[Change]:
    """What is told of what ACT does, up to the first change of LAST."""
    seen: list[Change] = []
    async with asyncio.timeout(20), aclosing(files.watch(path, recursive=recursive)) as changes:
        async for change in changes:
            if change.kind is ChangeKind.READY:
                assert not seen
                await act()
                continue
            seen.append(change)
            if change.path == last:
                break
    return seen


async def test_a_watch_sees_every_kind(files: GuestFiles, run: Run) -> None:
    async def act() -> None:
        await run("cd /w; echo 1 > f; mv f g; mv g /; rm /g; mkdir d; echo 2 > d/deep; touch end")

    seen = await changes_until(files, "/w", False, act, "end")
    assert seen == [
        Change(ChangeKind.CREATE, "f"),
        Change(ChangeKind.MODIFY, "f"),
        Change(ChangeKind.MOVE, "f", "g"),
        Change(ChangeKind.REMOVE, "g"),
        Change(ChangeKind.CREATE, "d"),
        Change(ChangeKind.CREATE, "end"),
    ]


async def test_a_recursive_watch_follows_directories(files: GuestFiles, run: Run) -> None:
    await files.mkdir("/w/a/b", parents=True)

    async def act() -> None:
        await run("cd /w; echo 1 > a/b/f; mv a z; echo 2 >> z/b/f; mkdir -p n/e/w; sleep 0.3")
        await run("cd /w; echo 3 > n/e/w/f; rm -r z; touch end")

    seen = await changes_until(files, "/w", True, act, "end")
    assert Change(ChangeKind.CREATE, "a/b/f") in seen
    assert Change(ChangeKind.MOVE, "a", "z") in seen
    assert Change(ChangeKind.MODIFY, "z/b/f") in seen
    assert Change(ChangeKind.CREATE, "n/e/w") in seen
    assert Change(ChangeKind.CREATE, "n/e/w/f") in seen
    assert Change(ChangeKind.REMOVE, "z/b/f") in seen
    assert Change(ChangeKind.REMOVE, "z") in seen


async def test_a_watch_ends_with_its_root(files: GuestFiles, run: Run) -> None:
    seen = await changes_until(files, "/w", True, lambda: files.remove("/w", recursive=True), "?")
    assert seen == [Change(ChangeKind.REMOVE, "")]


async def test_a_watch_of_a_file(files: GuestFiles, run: Run) -> None:
    await files.write("/w/f", b"")
    seen = await changes_until(files, "/w/f", False, lambda: files.append("/w/f", b"x"), "")
    assert seen == [Change(ChangeKind.MODIFY, "")]


@pytest.mark.slow
async def test_a_watch_that_nobody_reads_holds_nobody_up(files: GuestFiles, run: Run) -> None:
    """The guest makes more changes than any queue holds; the watcher then hears of an overflow."""
    flood = (
        "import os\nfor i in range(60_000):\n  os.mkdir('/w/%0200d' % i); os.rmdir('/w/%0200d' % i)"
    )
    kinds: dict[ChangeKind, int] = {}
    async with asyncio.timeout(50), aclosing(files.watch("/w")) as changes:
        async for change in changes:
            if change.kind is ChangeKind.READY:
                assert (await run(["python3", "-c", flood])).status.exit_code == 0
                assert await files.exists("/w")
                await files.write("/w/end", b"")
            kinds[change.kind] = kinds.get(change.kind, 0) + 1
            if change.kind is ChangeKind.OVERFLOW:
                break
    assert kinds[ChangeKind.CREATE] > 1000
