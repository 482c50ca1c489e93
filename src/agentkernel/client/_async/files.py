"""Files of a sandbox. Every call runs inside it: a link of the guest's leads nowhere else."""

from __future__ import annotations

import os
from builtins import list as List
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from agentkernel.client import wire
from agentkernel.client._async.transport import (
    LONG_CALL_SECONDS,
    PIECE_SECONDS,
    AsyncTransport,
)
from agentkernel.client.asyncio_stream import in_thread
from agentkernel.client.results import Change, Entry, written
from agentkernel.errors import DaemonError
from agentkernel.ids import new_id

if TYPE_CHECKING:
    from agentkernel.client.tree_copies import TreeUpload
    from agentkernel.trees.entries import TreeSummary

    Progress = Callable[[TreeSummary], object]

LocalPath = str | os.PathLike[str]


class AsyncFiles:
    """The errors are the ones of `open` and friends too: FileNotFoundError, IsADirectoryError, …

    `user`: with whose rights (root, user, a number); without it, the sandbox's own user's.
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{wire.segment(sandbox)}"

    # -- content --------------------------------------------------------------------------------

    async def read_bytes(
        self, path: str, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> bytes:
        query = {"path": path, "offset": offset or None, "length": length, "user": user}
        return await self._transport.fetch(
            "GET", f"{self._path}/files", query=query, seconds=LONG_CALL_SECONDS
        )

    async def read(self, path: str, *, user: str | None = None) -> str:
        """As text. UnicodeDecodeError if it is not UTF-8: nothing is bent."""
        return (await self.read_bytes(path, user=user)).decode()

    def read_stream(
        self, path: str, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """In pieces as they come, for files of any size. DaemonError if it breaks off."""
        query = {"path": path, "offset": offset or None, "length": length, "user": user}
        where = f"{self._path}/files"
        return self._transport.pieces(where, query=query, patience=PIECE_SECONDS)

    async def write(
        self,
        path: str,
        data: bytes | str | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = False,
        user: str | None = None,
    ) -> int:
        """Replaces the file, whole or not at all; its size. `data` may come in pieces."""
        query = {"mode": _octal(mode), "parents": parents or None, "user": user}
        return await self._put(path, data, query)

    async def append(
        self, path: str, data: bytes | str | AsyncIterable[bytes], *, user: str | None = None
    ) -> int:
        return await self._put(path, data, {"append": True, "user": user})

    async def _put(
        self, path: str, data: bytes | str | AsyncIterable[bytes], query: dict[str, Any]
    ) -> int:
        where, query = f"{self._path}/files", {"path": path, **query}
        if isinstance(data, bytes | bytearray | memoryview | str):
            body = await self._transport.fetch(
                "PUT",
                where,
                query=query,
                body=data.encode() if isinstance(data, str) else bytes(data),
                headers={"Content-Type": "application/octet-stream"},
                seconds=LONG_CALL_SECONDS,
            )
            answer = wire.parse_object(body)
        else:
            answer = await self._transport.upload(where, data, query=query)
        return _number(answer, "size")

    async def upload(
        self,
        files: Mapping[str, bytes | str],
        path: str,
        *,
        mode: int | None = None,
        user: str | None = None,
    ) -> dict[str, int]:
        """Writes several files below the directory `path`, with their parents; their sizes.

        For files that are in memory, in one call: `upload_tree` is for those on disk.
        """
        boundary = new_id()
        body = await self._transport.fetch(
            "POST",
            f"{self._path}/files",
            query={"path": path, "mode": _octal(mode), "user": user},
            body=wire.form(files, boundary),
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
            seconds=LONG_CALL_SECONDS,
        )
        return {name: size for name, size in written(wire.parse_object(body))}

    # -- one question, one answer ---------------------------------------------------------------

    async def stat(self, path: str, *, follow: bool = True, user: str | None = None) -> Entry:
        query = {"path": path, "follow": None if follow else 0, "user": user}
        return Entry.of(await self._transport.call("GET", f"{self._path}/stat", query=query))

    async def exists(self, path: str, *, user: str | None = None) -> bool:
        try:
            await self.stat(path, user=user)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def list(self, path: str, *, user: str | None = None) -> List[Entry]:
        query = {"path": path, "user": user}
        body = await self._transport.call("GET", f"{self._path}/list", query=query)
        return [Entry.of(entry) for entry in body["entries"]]

    async def mkdir(
        self, path: str, *, mode: int | None = None, parents: bool = False, user: str | None = None
    ) -> None:
        wanted = {"path": path, "mode": _octal(mode), "parents": parents or None, "user": user}
        await self._transport.call("POST", f"{self._path}/mkdir", json=_given(wanted))

    async def move(
        self, path: str, to: str, *, replace: bool = False, user: str | None = None
    ) -> None:
        wanted = {"path": path, "to": to, "replace": replace or None, "user": user}
        await self._transport.call("POST", f"{self._path}/move", json=_given(wanted))

    async def remove(self, path: str, *, recursive: bool = False, user: str | None = None) -> None:
        query = {"path": path, "recursive": recursive or None, "user": user}
        seconds = LONG_CALL_SECONDS
        await self._transport.call("DELETE", f"{self._path}/files", query=query, seconds=seconds)

    # -- directories ----------------------------------------------------------------------------

    async def download_tree(
        self,
        path: str,
        local_dir: LocalPath,
        *,
        user: str | None = None,
        limit_bytes: int | None = None,
        limit_files: int | None = None,
        progress: Progress | None = None,
    ) -> TreeSummary:
        """Copies what is below `path` into `local_dir`, made if need be; never anywhere else.

        Files that are there are replaced, each when the new one is whole. Links that lead out of
        the tree are left out (`refused_links`), as are FIFOs, sockets and devices (`skipped`).
        Owners are not taken over, nor the setuid bits; of the modes the umask takes its part.
        """
        from agentkernel.client.tree_copies import TreeDownload, tree_limits

        limits = tree_limits(limit_bytes, limit_files)
        copy = TreeDownload(local_dir, limits)
        try:
            async with aclosing(self._tar(path, limits | {"user": user})) as pieces:
                async for piece in pieces:
                    await in_thread(copy.feed, piece)
                    if progress is not None:
                        progress(copy.summary)
            return copy.finish()
        except DaemonError:
            copy.explain()
            raise
        finally:
            copy.close()

    async def upload_tree(
        self,
        local_dir: LocalPath,
        path: str,
        *,
        user: str | None = None,
        limit_bytes: int | None = None,
        limit_files: int | None = None,
        progress: Progress | None = None,
    ) -> TreeSummary:
        """Copies what is below `local_dir` into `path`, made with its parents if need be.

        Links are copied as they are. What is made belongs to `user`. Each file appears whole or not
        at all; what was written before a failure stays.
        """
        from agentkernel.client.tree_copies import TreeUpload, tree_limits

        limits = tree_limits(limit_bytes, limit_files)
        copy = TreeUpload(local_dir, limits)
        async with aclosing(_chunks(copy, progress)) as chunks:
            query = {"path": path, "user": user, **limits}
            answer = await self._transport.upload(f"{self._path}/tree", chunks, query=query)
        arrived = _number(answer, "files"), _number(answer, "bytes")
        if arrived != (copy.summary.files, copy.summary.bytes):
            raise wire.broken("a part of the directory is missing")
        return copy.summary

    def download_tar(
        self, path: str, *, prefix: str = "", user: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The same as a tar archive, in pieces, every name below `prefix`. What a sandbox put into
        it is for the reader to mistrust. DaemonError if it breaks off: then it has no end."""
        return self._tar(path, {"prefix": prefix or None, "user": user})

    async def upload_tar(
        self, pieces: AsyncIterable[bytes], path: str, *, user: str | None = None
    ) -> TreeSummary:
        """Unpacks a tar archive (not a compressed one) into `path`, inside the sandbox."""
        from agentkernel.trees.entries import TreeSummary

        query = {"path": path, "user": user}
        answer = await self._transport.upload(f"{self._path}/tree", pieces, query=query)
        return TreeSummary(_number(answer, "files"), _number(answer, "bytes"))

    async def watch(
        self, path: str, *, recursive: bool = False, user: str | None = None
    ) -> AsyncGenerator[Change, None]:
        """Changes below a directory, or of a file, until the caller stops or it is gone."""
        query = {"path": path, "recursive": recursive or None, "user": user}
        where = f"{self._path}/watch"
        async with aclosing(self._transport.events(where, query=query)) as events:
            async for kind, body in events:
                if kind == "end":
                    return
                yield Change.of(kind, body)
        raise wire.broken("a watch that has no end")

    def _tar(self, path: str, query: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        where, query = f"{self._path}/tree", {"path": path, **query}
        return self._transport.pieces(where, query=query, patience=PIECE_SECONDS)


async def _chunks(copy: TreeUpload, progress: Progress | None) -> AsyncGenerator[bytes, None]:
    chunks = copy.chunks()
    while (chunk := await in_thread(next, chunks, None)) is not None:
        yield chunk
        if progress is not None:
            progress(copy.summary)


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:o}"


def _given(wanted: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if value is not None}


def _number(answer: dict[str, Any], key: str) -> int:
    if not isinstance(number := answer.get(key), int):
        raise wire.broken(f"no number of {key}")
    return number
