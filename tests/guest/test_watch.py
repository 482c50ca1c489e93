"""Watches tell what happens, and end when they should."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from agentkernel.guest.file_types import Change, ChangeKind
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.commands import ExecResult

Run = Callable[..., Awaitable[ExecResult]]


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
