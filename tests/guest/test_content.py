"""What files hold, read and written; whole or not at all."""

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
    GuestFileNotFoundError,
    GuestFileTooLargeError,
)
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.trees.entries import FileType

Run = Callable[..., Awaitable[ExecResult]]


async def names(files: GuestFiles, path: str) -> list[str]:
    return [entry.name for entry in await files.list(path)]


WORKERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker"


async def no_worker_is_left(run: Run) -> None:
    deadline = time.monotonic() + 5
    while (await run(WORKERS)).stdout.strip() != b"0":
        assert time.monotonic() < deadline, "a worker is still there"
        await asyncio.sleep(0.02)


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
