"""What a sandbox may have put where a file is expected, and what it may do while a call runs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agentkernel.backends.base import Sandbox
from agentkernel.errors import (
    GuestFileError,
    GuestFileNotFoundError,
    GuestFileSpecialError,
    InvalidInputError,
    UnsupportedError,
)
from agentkernel.guest.file_types import record
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult, start_command
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

Run = Callable[..., Awaitable[ExecResult]]

SPECIALS = """
cd /w; mkfifo fifo; ln -s fifo to_fifo; ln -s /dev/zero to_zero
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
"""


@pytest.mark.parametrize(
    "path",
    [
        "/w/fifo",
        "/w/to_fifo",
        "/w/to_zero",
        "/w/socket",
        "/dev/zero",
        "/dev/null",
        "/dev/full",
        "/dev/urandom",
        "/dev/tty",
        "/proc/self/mem",
        "/proc/thread-self/mem",
    ],
)
async def test_specials_are_refused_at_once(files: GuestFiles, run: Run, path: str) -> None:
    await run(SPECIALS)
    began = time.monotonic()
    with pytest.raises(GuestFileSpecialError):
        await files.read(path)
    with pytest.raises(GuestFileError):
        await files.append(path, b"x")
    with pytest.raises(GuestFileError):
        await files.write(path, b"x")
    assert time.monotonic() - began < 5
    assert (await run("test -c /dev/null -a -p /w/fifo -a -S /w/socket")).status.exit_code == 0


async def test_nobody_who_waits_at_a_fifo_notices(files: GuestFiles, run: Run) -> None:
    """Opening it for reading would let a writer through."""
    await run("mkfifo /w/fifo")
    writer = asyncio.ensure_future(run("timeout 1 sh -c 'echo x > /w/fifo; echo passed'"))
    await asyncio.sleep(0.3)
    with pytest.raises(GuestFileSpecialError):
        await files.read("/w/fifo")
    async for _ in files.tree_read("/w"):
        pass
    assert (await writer).stdout == b""


async def test_the_workers_own_links_are_not_followed(files: GuestFiles) -> None:
    for path in (
        "/proc/self/fd/0",
        "/proc/self/fd/3",
        "/proc/self/exe",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/etc/passwd",
        "/dev/stdin",
        "/proc/1/root/etc/passwd",
    ):
        with pytest.raises(GuestFileError):
            await files.read(path)
        with pytest.raises(GuestFileError):
            await files.append(path, b"x")


async def test_files_without_a_size(files: GuestFiles) -> None:
    assert (await files.read("/proc/self/status")).startswith(b"Name:\tfile-worker")
    assert b"MemTotal" in await files.read("/proc/meminfo")
    assert await files.read("/proc/meminfo", length=8) == b"MemTotal"


async def test_links_that_lead_nowhere(files: GuestFiles, run: Run) -> None:
    await run("cd /w; ln -s missing dangling; ln -s loop loop; ln -s b a; ln -s a b")
    with pytest.raises(GuestFileNotFoundError):
        await files.read("/w/dangling")
    for path in ("/w/loop", "/w/a", "/w/a/x"):
        with pytest.raises(GuestFileError) as caught:
            await files.read(path)
        assert caught.value.errno == errno.ELOOP
        assert caught.value.details["errno_name"] == "ELOOP"


async def test_a_worker_is_confined_like_a_process(files: GuestFiles, run: Run) -> None:
    fields = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")

    def confinement(text: bytes) -> dict[str, str]:
        lines = dict(line.split(":", 1) for line in text.decode().splitlines())
        return {field: lines[field].strip() for field in fields}

    process = confinement((await run("cat /proc/self/status")).stdout)
    assert confinement(await files.read("/proc/self/status")) == process
    assert process["NoNewPrivs"] == "1" and process["Seccomp"] == "2"
    limits = await files.read("/proc/self/limits")
    assert limits.splitlines()[1:] == (await run("cat /proc/self/limits")).stdout.splitlines()[1:]


OPEN_WORKER = """
import os, sys
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if open(f'/proc/{pid}/comm').read() != 'file-worker\\n': continue
    except OSError: continue
    opened = []
    for name in ('mem', 'environ', 'maps', 'fd', 'root', 'cwd', 'exe'):
        try:
            path = f'/proc/{pid}/{name}'
            os.readlink(path + '/3') if name == 'fd' else open(path, 'rb').read(1)
            opened.append(name)
        except OSError: pass
    print('worker', *opened)
"""


async def slowly() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1000)
        await asyncio.sleep(0.02)


async def test_a_guest_can_not_look_into_a_worker(files: GuestFiles, run: Run) -> None:
    """It has the memory of agentd, which is nobody's business."""
    writer = asyncio.ensure_future(files.write("/w/f", slowly()))
    await asyncio.sleep(0.2)
    try:
        assert (await run(["python3", "-c", OPEN_WORKER])).stdout == b"worker\n"
    finally:
        writer.cancel()
        await asyncio.wait([writer])


SIGNAL = "for p in /proc/[0-9]*; do grep -qs file-worker $p/comm && kill -{} ${{p#/proc/}}; done"


async def test_a_guest_that_kills_a_worker_leaves_nothing(
    files: GuestFiles, run: Run, sandbox: Sandbox
) -> None:
    await files.write("/w/f", b"old")
    writer = asyncio.ensure_future(files.write("/w/f", slowly()))
    await asyncio.sleep(0.2)
    await run(SIGNAL.format("KILL"))
    with pytest.raises(GuestFileError) as caught:
        await writer
    assert caught.value.errno == errno.ECANCELED
    assert await files.read("/w/f") == b"old"
    assert len(await files.list("/w")) == 1


@pytest.mark.parametrize("signal", ["STOP", "TERM", "INT", "HUP", "PIPE"])
async def test_other_signals_of_a_guest_do_no_harm(
    files: GuestFiles, run: Run, signal: str
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(0.2)
        await run(SIGNAL.format(signal))
        yield b"two"

    async with asyncio.timeout(20):
        await files.write("/w/f", pieces())
    assert await files.read("/w/f") == b"onetwo"


async def test_a_hundred_calls_at_once(files: GuestFiles) -> None:
    await asyncio.gather(*(files.write(f"/w/{i}", b"%d" % i) for i in range(100)))
    contents = await asyncio.gather(*(files.read(f"/w/{i}") for i in range(100)))
    assert contents == [b"%d" % i for i in range(100)]


FILL = """
import os, time
end = time.time() + 30
print(flush=True)
while time.time() < end:
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
    except OSError: time.sleep(0.001)
"""


async def test_a_sandbox_full_of_processes(runs: Runs) -> None:
    """A control group counts workers too, a limit of the user's processes does not."""
    sandbox = await runs.create(SandboxSpec(pids=12))
    files = GuestFiles(sandbox.channel)
    process = start_command(sandbox, ["python3", "-c", FILL], ProcessOptions())
    assert await process.output()
    await asyncio.sleep(0.3)
    for _ in range(20):
        try:
            assert (await files.stat("/")).name == "/"
        except GuestFileError as error:
            assert error.errno == errno.EAGAIN
            assert str(error) == "/: no process for a worker"
    process.kill()
    while await process.output():
        pass
    assert await files.exists("/")


# -- trees ----------------------------------------------------------------------------------------


async def stream(*parts: dict[str, object] | bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part if isinstance(part, bytes) else record(part)


def file(
    path: str | bytes, content: bytes = b"x", **more: object
) -> list[dict[str, object] | bytes]:
    return [{"path": path, "type": "file", "size": len(content), **more}, content]


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "/w/out", "", ".", "a//b", "a/", "./a", "a/.", b"nul\0", "x" * 256],
)
@pytest.mark.parametrize("type", ["file", "dir", "link"])
async def test_entries_that_lead_out_are_refused(
    files: GuestFiles, path: str | bytes, type: str
) -> None:
    entry: dict[str, object] = {"path": path, "type": type, "size": 0, "target": "t"}
    with pytest.raises(InvalidInputError):
        await files.tree_write("/w/root", stream(entry))
    assert [entry.name for entry in await files.list("/w")] == ["root"]
    assert await files.list("/w/root") == []


@pytest.mark.parametrize("type", ["fifo", "socket", "char", "block", "hardlink", "", 7])
async def test_other_types_are_refused(files: GuestFiles, type: object) -> None:
    with pytest.raises(InvalidInputError):
        await files.tree_write("/w/root", stream({"path": "x", "type": type, "size": 0}))
    assert await files.list("/w/root") == []


@pytest.mark.parametrize(
    "content",
    [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\x02\0\0\0\x92\x01", record({"path": "a"})[:-1]],
)
async def test_content_that_is_no_tree(files: GuestFiles, content: bytes) -> None:
    with pytest.raises(InvalidInputError):
        await files.tree_write("/w/root", stream(content))


async def test_links_of_earlier_entries_are_not_followed(files: GuestFiles, run: Run) -> None:
    """The classic of archives: a link out of the tree, then a file through it."""
    await files.mkdir("/w/outside")
    await files.write("/w/outside/f", b"untouched")
    link: dict[str, object] = {"path": "a", "type": "link", "target": "../outside"}
    for below in ("a/f", "a/new", "a/b/c"):
        with pytest.raises(GuestFileError) as caught:
            await files.tree_write("/w/root", stream(link, *file(below)))
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    for path, target in (("f", "../outside/f"), ("g", "../outside/new")):
        replaced: dict[str, object] = {"path": path, "type": "link", "target": target}
        await files.tree_write("/w/root", stream(replaced, *file(path, b"inside")))
        assert await files.read(f"/w/root/{path}") == b"inside"
    with pytest.raises(GuestFileError):
        await files.tree_write("/w/root", stream(link, {"path": "a", "type": "dir"}))
    assert [entry.name for entry in await files.list("/w/outside")] == ["f"]
    assert await files.read("/w/outside/f") == b"untouched"


async def test_bits_that_give_rights_are_dropped(files: GuestFiles) -> None:
    await files.tree_write(
        "/w/root", stream(*file("f", mode=0o6755), {"path": "d", "type": "dir", "mode": 0o7005})
    )
    assert (await files.stat("/w/root/f")).mode == 0o755
    assert (await files.stat("/w/root/d")).mode == 0o705


SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir('/w/root')
open('/w/swapping', 'w').close()
swaps = 0
while os.path.exists('/w/swapping'):
    for _ in range(50):
        libc.renameat2(-100, b'a', -100, b'b', 2)
        swaps += 1
print(swaps)
"""
NAIVE = """
import os
n = 0
for i in range(3000):
    try:
        os.makedirs('/w/root/a/s', exist_ok=True)
        open('/w/root/a/s/naive%d' % i, 'w').close()
    except OSError: pass
print(len(os.listdir('/w/outside/s')))
"""


async def it_appears(files: GuestFiles, path: str) -> None:
    for _ in range(500):
        if await files.exists(path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.slow
async def test_a_directory_swapped_for_a_link_gets_nothing_out(files: GuestFiles, run: Run) -> None:
    """While entries below `a` are made, `a` is now a directory, now a link out of the tree."""
    await run("mkdir -p /w/root/a /w/outside/s; ln -s /w/outside /w/root/b")
    swapper = asyncio.ensure_future(run(["python3", "-c", SWAP]))
    await it_appears(files, "/w/swapping")
    written = refused = 0
    for i in range(300):
        # Another directory in between, so that each file finds its way anew.
        parts = [part for j in range(10) for part in (*file(f"a/s/f{i}-{j}"), *file(f"z/{j}"))]
        try:
            await files.tree_write("/w/root", stream(*parts))
            written += 1
        except GuestFileError as error:
            assert error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EEXIST)
            refused += 1
    outside = await files.list("/w/outside/s")
    naive = await run(["python3", "-c", NAIVE])
    await files.remove("/w/swapping")
    assert int((await swapper).stdout) > 1000
    assert outside == []
    assert written + refused == 300 and refused > 0
    assert len([e async for e in files.tree_read("/w/root")]) > 20
    assert int(naive.stdout) > 0, "control: by path, the same race gets out"


@pytest.mark.slow
async def test_removing_while_directories_are_swapped(files: GuestFiles, run: Run) -> None:
    await run("mkdir -p /w/root/a /w/outside/s; ln -s /w/outside /w/root/b; touch /w/outside/kept")
    swapper = asyncio.ensure_future(run(["python3", "-c", SWAP]))
    await it_appears(files, "/w/swapping")
    for _ in range(100):
        await run("mkdir -p /w/root/a/x/y /w/root/b/x/y; ln -sfn /w/outside /w/root/c")
        with contextlib.suppress(GuestFileError):
            await files.remove("/w/root/a", recursive=True)
    await files.remove("/w/swapping")
    await swapper
    assert await files.exists("/w/outside/kept")


async def test_a_lost_host_ends_its_workers(runs: Runs, files: GuestFiles, run: Run) -> None:
    """Not a job: nobody is left to hear of it."""
    calls = [asyncio.ensure_future(files.write(f"/w/{i}", slowly())) for i in range(5)]
    await asyncio.sleep(0.2)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    deadline = time.monotonic() + 5
    while b"file-worker" in (await run("cat /proc/[0-9]*/comm 2>/dev/null")).stdout:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert await files.list("/w") == []


# -- requests that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "field", "arguments"),
    [
        ("file.stat", "path", {}),
        ("file.stat", "path", {"path": "relative"}),
        ("file.stat", "path", {"path": b"/a\0b"}),
        ("file.stat", "path", {"path": 7}),
        ("file.stat", "follow", {"path": "/", "follow": 1}),
        ("file.stat", "user", {"path": "/", "user": 0}),
        ("file.read", "offset", {"path": "/", "offset": -1}),
        ("file.read", "length", {"path": "/", "length": 1 << 63}),
        ("file.write", "mode", {"path": "/x", "mode": 0o1000}),
        ("file.write", "append", {"path": "/x", "append": "yes"}),
        ("file.list", "limit", {"path": "/", "limit": 0}),
        ("file.list", "limit", {"path": "/", "limit": 10_001}),
        ("file.list", "after", {"path": "/", "after": 1}),
        ("file.mkdir", "mode", {"path": "/x", "mode": 0o2755}),
        ("file.move", "to", {"path": "/x"}),
        ("file.move", "to", {"path": "/x", "to": "y"}),
        ("file.remove", "recursive", {"path": "/x", "recursive": None}),
        ("tree.read", "limit_files", {"path": "/", "limit_files": -1}),
        ("tree.write", "parents", {"path": "/", "parents": 1}),
        ("file.watch", "window", {"path": "/", "window": 1 << 30}),
    ],
)
async def test_a_bad_request_names_the_field(
    sandbox: Sandbox, op: str, field: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(InvalidInputError, match=f"agentd: {field}$"):
        await sandbox.channel.call(op, **arguments)  # type: ignore[arg-type]


async def test_an_operation_that_is_none(sandbox: Sandbox) -> None:
    for op in ("file.", "file.chmod", "tree.remove", "file.stat "):
        with pytest.raises(UnsupportedError):
            await sandbox.channel.call(op, path="/")
