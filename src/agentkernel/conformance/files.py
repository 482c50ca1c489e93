"""The file calls."""

from __future__ import annotations

import asyncio
import shutil

from agentkernel.conformance.bench import Bench, Failed, expect, says, within
from agentkernel.errors import (
    GuestFileError,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestFileSpecialError,
    GuestIsADirectoryError,
)
from agentkernel.guest.files import GuestFiles


async def files_are_written_and_read(bench: Bench) -> None:
    """content, mode, append, parents, listing, moving and removing"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)
        data = bytes(range(256)) * 4096
        await within(files.write("/root/a/b/file", data, parents=True, mode=0o640))
        expect(await within(files.read("/root/a/b/file")) == data, "content")
        await within(files.append("/root/a/b/file", b"end"))
        entry = await within(files.stat("/root/a/b/file"))
        expect((entry.type, entry.size, entry.mode) == ("file", len(data) + 3, 0o640), entry)
        expect(
            (await says(sandbox, "wc -c < /root/a/b/file")).strip() == str(len(data) + 3), "inside"
        )
        await within(files.mkdir("/root/a/c"))
        await within(files.move("/root/a/b/file", "/root/a/c/file"))
        names = [e.name for e in await within(files.list("/root/a"))]
        expect(names == ["b", "c"], names)
        await within(files.remove("/root/a", recursive=True))
        expect(not await within(files.exists("/root/a")), "removed")


async def file_errors_have_their_types(bench: Bench) -> None:
    """a missing file, a directory, an existing target and a FIFO are errors of their own"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)
        await says(sandbox, "mkfifo /root/fifo; echo x > /root/x; echo y > /root/y")
        for call, kind in (
            (files.read("/root/none"), GuestFileNotFoundError),
            (files.read("/root"), GuestIsADirectoryError),
            (files.move("/root/x", "/root/y"), GuestFileExistsError),
            (files.read("/root/fifo"), GuestFileSpecialError),
        ):
            try:
                await within(call)
            except kind:
                continue
            except GuestFileError as exc:
                raise Failed(f"{kind.__name__} was due, not {exc!r}") from None
            raise Failed(f"{kind.__name__} was due")


async def writing_replaces_a_file_whole(bench: Bench) -> None:
    """a reader sees the old file or the new one, never half of it; a link's target is written"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)
        await within(files.write("/root/w/file", b"a" * 100_000, parents=True))
        await says(sandbox, "cd /root/w; ln -s file link; chmod 600 file; ln file old")
        await within(files.write("/root/w/link", b"b" * 10))
        expect(await within(files.read("/root/w/file")) == b"b" * 10, "content")
        expect(await within(files.read("/root/w/old")) == b"a" * 100_000, "who had the old one")
        expect((await within(files.stat("/root/w/link", follow=False))).type == "link", "link")
        expect((await within(files.stat("/root/w/file"))).mode == 0o600, "mode is kept")
        expect(await says(sandbox, "ls -A /root/w | tr '\\n' ' '") == "file link old ", "no rests")


async def links_lead_nowhere_but_inside(bench: Bench) -> None:
    """a link to a file of the host is a link inside; the calls are carried out there"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)
        await says(
            sandbox, "ln -s /etc/hostname /root/link; ln -s ../../../../../etc/hostname /root/up"
        )
        for path in ("/root/link", "/root/up"):
            expect(await within(files.read(path)) == b"sandbox\n", path)


async def trees_go_in_and_out(bench: Bench) -> None:
    """a directory tree as a whole, with modes and links"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)
        await says(
            sandbox,
            "mkdir -p /root/t/d; cd /root/t/d; echo one > f; chmod 751 f; ln -s f l",
        )
        source = bench.state_dir / f"tree-{sandbox.id}"
        try:
            await within(files.download_tree("/root/t", source))
            expect((source / "d" / "f").read_text() == "one\n", "content")
            expect((source / "d" / "l").is_symlink(), "link")
            await within(files.upload_tree(source, "/root/back"))
        finally:
            await asyncio.to_thread(shutil.rmtree, source)
        expect(
            await says(sandbox, "cat /root/back/d/l; stat -c %a /root/back/d/f") == "one\n751\n",
            "back",
        )


async def changes_are_seen(bench: Bench) -> None:
    """a watch tells of a file that is made"""
    async with bench.sandbox() as sandbox:
        files = GuestFiles(sandbox.channel)

        async def first() -> str:
            async for change in files.watch("/root"):
                if change.kind == "ready":
                    await says(sandbox, "echo x > /root/new")
                elif change.path.endswith("new"):
                    return change.kind
            raise Failed("the watch ended")

        expect(await within(first()) in ("create", "modify"), "kind of change")


CASES = (
    files_are_written_and_read,
    file_errors_have_their_types,
    writing_replaces_a_file_whole,
    links_lead_nowhere_but_inside,
    trees_go_in_and_out,
    changes_are_seen,
)
