"""Files inside a sandbox, as seen from the host.

Every call is carried out inside, by a worker of agentd with the rights of a user of the sandbox, so
a link in there can't lead the host anywhere. Errors are GuestFileError and its kinds, which are the
OSErrors one expects too; a path that is missing is a FileNotFoundError.

    files = GuestFiles(sandbox.channel)
    await files.write("/work/notes.txt", b"hello", parents=True)
    async for piece in files.read_stream("/work/big.bin"): ...
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterator,
)
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

from agentkernel.errors import (
    GuestFileNotFoundError,
    GuestFileTooLargeError,
    GuestNotADirectoryError,
    GuestProtocolError,
    InvalidInputError,
)
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.file_calls import ANSWER_SECONDS, FileCall, FilePath, file_errors
from agentkernel.guest.file_types import (
    Change,
    FileEntry,
    RecordReader,
    count,
    flag,
    parse_change,
    parse_entry,
    parse_named_entry,
    tree_bytes,
)
from agentkernel.trees.entries import (
    DEFAULT_TREE_BYTES,
    DEFAULT_TREE_FILES,
    Part,
    TreeCount,
    TreeEntry,
    TreeSummary,
    in_chunks,
    to_bytes,
)
from agentkernel.trees.local import TreePacker, TreeUnpacker

DEFAULT_READ_BYTES: Final = 64 << 20
DEFAULT_LIST_ENTRIES: Final = 100_000
_PAGE: Final = 1000

Entries = list[FileEntry]  # the class below has a method of the type's name
T = TypeVar("T")


class GuestFiles:
    """The files of one sandbox, with the rights of `user` (None: the sandbox's own default)."""

    def __init__(self, channel: GuestChannel, *, user: str | None = None) -> None:
        self._channel = channel
        self._user = user

    # -- one question, one answer ---------------------------------------------------------------

    async def stat(self, path: FilePath, *, follow: bool = True) -> FileEntry:
        body = await self._ask("file.stat", path, follow=follow)
        return parse_entry(body, posixpath.basename(os.fspath(path).rstrip("/")) or "/")

    async def exists(self, path: FilePath) -> bool:
        """False also for a link whose target is missing."""
        try:
            await self.stat(path)
        except (GuestFileNotFoundError, GuestNotADirectoryError):
            return False
        return True

    async def mkdir(
        self, path: FilePath, *, mode: int | None = None, parents: bool = False
    ) -> bool:
        """True if it was made. With `parents` a directory that exists is no error."""
        body = await self._ask("file.mkdir", path, parents=parents, **_optional(mode=mode))
        return flag(body, "made")

    async def move(self, path: FilePath, to: FilePath, *, replace: bool = False) -> None:
        """Within one file system; another one is EXDEV."""
        await self._ask("file.move", path, to=_checked(to), replace=replace)

    async def remove(
        self, path: FilePath, *, recursive: bool = False, seconds: float | None = None
    ) -> int:
        """The number of files, links and directories that are gone."""
        seconds = seconds or (3600.0 if recursive else ANSWER_SECONDS)
        body = await self._ask("file.remove", path, seconds=seconds, recursive=recursive)
        return count(body, "removed")

    # -- content --------------------------------------------------------------------------------

    async def read(
        self,
        path: FilePath,
        *,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = DEFAULT_READ_BYTES,
    ) -> bytes:
        """The whole file or a range of it. More than `max_bytes` is GuestFileTooLargeError."""
        wanted = max_bytes + 1 if length is None else min(length, max_bytes + 1)
        content = bytearray()
        async with aclosing(self.read_stream(path, offset=offset, length=wanted)) as pieces:
            async for piece in pieces:
                content += piece
        if len(content) > max_bytes:
            raise GuestFileTooLargeError(
                f"{path} has more than {max_bytes} bytes",
                hint="read it as a stream, or raise max_bytes",
                errno_name="EFBIG",
                path=str(path),
            )
        return bytes(content)

    async def read_stream(
        self, path: FilePath, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of the file up to the size it had at the start.

        Asking for more says that the piece before is out of the caller's hands: one that stops
        asking stops the guest, and neither end holds more than a window.
        """
        arguments = _optional(offset=offset or None, length=length)
        received = 0
        async with self._open("file.read", path, **arguments) as call:
            async for piece in call.output():
                received += len(piece)
                if length is not None and received > length:
                    raise GuestProtocolError("agentd sent more of a file than was asked for")
                yield piece
            if count(call.result, "sent") != received:
                raise GuestProtocolError("agentd lost a part of a file")

    async def write(
        self,
        path: FilePath,
        data: bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = False,
    ) -> int:
        """Writes the file whole or not at all, also if `data` raises or the caller is cancelled.

        Mode and owner of a file that exists are kept. Returns its size.
        """
        return await self._write(path, data, parents=parents, **_optional(mode=mode))

    async def append(
        self,
        path: FilePath,
        data: bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = False,
    ) -> int:
        """Adds to the file, which is made if need be. What was added before a failure stays."""
        return await self._write(path, data, append=True, parents=parents, **_optional(mode=mode))

    async def _write(
        self, path: FilePath, data: bytes | AsyncIterable[bytes], **arguments: Any
    ) -> int:
        async with self._open("file.write", path, **arguments) as call:
            if isinstance(data, bytes):
                await call.send(data)
            else:
                async for piece in data:
                    await call.send(piece)
            return count(await call.finish(), "size")

    # -- directories ----------------------------------------------------------------------------

    async def list(self, path: FilePath, *, max_entries: int = DEFAULT_LIST_ENTRIES) -> Entries:
        """All entries by name. More than `max_entries` is GuestFileTooLargeError."""
        entries: Entries = []
        async with aclosing(self.iterate(path)) as found:
            async for entry in found:
                if len(entries) >= max_entries:
                    raise GuestFileTooLargeError(
                        f"{path} has more than {max_entries} entries",
                        hint="iterate over it, or raise max_entries",
                        errno_name="EFBIG",
                        path=str(path),
                    )
                entries.append(entry)
        return entries

    async def iterate(
        self, path: FilePath, *, after: str | None = None
    ) -> AsyncGenerator[FileEntry, None]:
        """Entries by name, from behind the name `after`, a page at a time."""
        more = True
        while more:
            page, more = await self._page(path, after)
            for entry in page:
                # Names that do not rise could go on for ever.
                if after is not None and to_bytes(entry.name) <= to_bytes(after):
                    raise GuestProtocolError("agentd listed a directory in circles")
                after = entry.name
                yield entry
            if more and not page:
                raise GuestProtocolError("agentd sent an empty page and promised more")

    async def _page(self, path: FilePath, after: str | None) -> tuple[Entries, bool]:
        reader = RecordReader()
        entries: Entries = []
        arguments = _optional(after=None if after is None else to_bytes(after))
        async with self._open("file.list", path, limit=_PAGE, **arguments) as call:
            async for piece in call.output():
                entries.extend(map(parse_named_entry, reader.records(piece)))
                if len(entries) > _PAGE:
                    raise GuestProtocolError("agentd sent more entries than were asked for")
            reader.finish()
            return entries, flag(call.result, "more")

    async def watch(
        self, path: FilePath, *, recursive: bool = False
    ) -> AsyncGenerator[Change, None]:
        """Changes below a directory, or of a file, until the caller stops or it is removed.

        The first one is `ready`: what happens after it is told, at least once.
        """
        reader = RecordReader()
        async with self._open("file.watch", path, recursive=recursive) as call:
            async for piece in call.output(seconds=None):
                for body in reader.records(piece):
                    yield parse_change(body)

    # -- trees ----------------------------------------------------------------------------------

    async def tree_read(
        self,
        path: FilePath,
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
    ) -> AsyncGenerator[Part | TreeSummary, None]:
        """Everything below a directory, ordered: each entry, a file's content in pieces after it.

        Names are relative paths that stay below the root; links are not followed. The last item
        is the summary.
        """
        reader = RecordReader()
        limits = {"limit_bytes": limit_bytes, "limit_files": limit_files}
        ours = TreeCount(**limits)
        async with self._open("tree.read", path, **limits) as call:
            async for piece in call.output():
                for part in reader.tree(piece):
                    if isinstance(part, TreeEntry):
                        ours.add(part.size)
                    yield part
            reader.finish()
            theirs = count(call.result, "files"), count(call.result, "bytes")
            if (ours.files, ours.bytes) != theirs:
                raise GuestProtocolError("agentd lost a part of a tree")
            yield TreeSummary(ours.files, ours.bytes, skipped=count(call.result, "skipped"))

    async def download_tree(
        self,
        path: FilePath,
        local_dir: Path,
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
    ) -> TreeSummary:
        """Copies what is below `path` into `local_dir`, made if need be; never anywhere else.

        Files that are there are replaced. Links that lead out of the tree are left out, and
        `refused_links` says how many; setuid bits and owners are not taken over.
        """
        await _in_thread(_make_directory, local_dir)
        limits = {"limit_bytes": limit_bytes, "limit_files": limit_files}
        unpacker = TreeUnpacker(local_dir, **limits)
        reader = RecordReader()

        def unpack(data: bytes) -> None:
            for part in reader.tree(data):
                unpacker.feed(part)

        try:
            async with self._open("tree.read", path, **limits) as call:
                async for piece in call.output():
                    await _in_thread(unpack, piece)
                reader.finish()
                unpacker.finish()
                return unpacker.summary(count(call.result, "skipped"))
        finally:
            unpacker.close()

    async def upload_tree(
        self,
        local_dir: Path,
        path: FilePath,
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
    ) -> TreeSummary:
        """Copies what is below `local_dir` into `path`, made with its parents if need be.

        Each file appears whole or not at all; what was written before a failure stays.
        """
        limits = {"limit_bytes": limit_bytes, "limit_files": limit_files}
        packer = TreePacker(local_dir, **limits)
        chunks = in_chunks(map(tree_bytes, packer.parts()))
        summary = await self.tree_write(path, _in_threads(chunks), **limits)
        ours = packer.summary
        if (summary.files, summary.bytes) != (ours.files, ours.bytes):
            raise GuestProtocolError("agentd lost a part of a tree")
        return ours

    async def tree_write(
        self,
        path: FilePath,
        data: AsyncIterable[bytes],
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
    ) -> TreeSummary:
        """The same from records that are packed already."""
        return await self._tree_write(path, data, limit_bytes=limit_bytes, limit_files=limit_files)

    async def tree_restore(
        self,
        path: FilePath,
        data: AsyncIterable[bytes],
        *,
        limit_bytes: int = DEFAULT_TREE_BYTES,
        limit_files: int = DEFAULT_TREE_FILES,
    ) -> TreeSummary:
        """The same with the owners and all of the modes that the records have."""
        return await self._tree_write(
            path, data, limit_bytes=limit_bytes, limit_files=limit_files, owners=True
        )

    async def _tree_write(
        self, path: FilePath, data: AsyncIterable[bytes], **arguments: Any
    ) -> TreeSummary:
        arguments["parents"] = True
        async with self._open("tree.write", path, **arguments) as call:
            async for piece in data:
                await call.send(piece)
            body = await call.finish()
            return TreeSummary(count(body, "files"), count(body, "bytes"))

    # -- the channel ----------------------------------------------------------------------------

    def _open(self, op: str, path: FilePath, **arguments: Any) -> FileCall:
        return FileCall(self._channel, op, path, self._arguments(path, arguments))

    async def _ask(
        self, op: str, path: FilePath, *, seconds: float = ANSWER_SECONDS, **arguments: Any
    ) -> dict[str, Any]:
        with file_errors(path):
            return await self._channel.call(op, seconds=seconds, **self._arguments(path, arguments))

    def _arguments(self, path: FilePath, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments | {"path": _checked(path)} | _optional(user=self._user)


def _checked(path: FilePath) -> bytes:
    text = os.fspath(path)
    if not text.startswith("/") or "\0" in text:
        raise InvalidInputError(f"{text!r} is not an absolute path")
    return to_bytes(text)


def _optional(**arguments: Any) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}


def _make_directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Like asyncio.to_thread, but a caller that is cancelled waits until the thread is done."""
    future = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    """The same for every step of a blocking iterator."""
    done = object()
    while (item := await _in_thread(next, items, done)) is not done:
        yield item
