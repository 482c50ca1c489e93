"""Directories over HTTP: as tar both ways, and what changes in them as events.

Tar becomes the guest's records and the records tar, a piece at a time: nothing of a tree is held,
and no archive is ever unpacked on this side of the sandbox.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import GuestProtocolError, InvalidInputError
from agentkernel.guest.file_types import ChangeKind, tree_bytes
from agentkernel.server import sse
from agentkernel.server.answers import Changed, Ended, Problem, TreeWritten, changed_of
from agentkernel.server.app import service_of
from agentkernel.server.content import Content, transfer_time, uploaded
from agentkernel.server.operations import EVENTS, TAR, route
from agentkernel.server.problems import encode, problem
from agentkernel.server.routes_files import OnPath, files_of
from agentkernel.trees.entries import (
    DEFAULT_TREE_BYTES,
    DEFAULT_TREE_FILES,
    FileType,
    TreeEntry,
    TreeSummary,
    is_clean,
)
from agentkernel.trees.tar_reader import TarReader
from agentkernel.trees.tar_writer import TarWriter

_CHUNK: Final = 1 << 16
_Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]
_Files = Annotated[int, Meta(ge=0, le=100_000_000)]


class TreeQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit_bytes: _Bytes = DEFAULT_TREE_BYTES
    limit_files: _Files = DEFAULT_TREE_FILES

    def limits(self) -> dict[str, int]:
        return {"limit_bytes": self.limit_bytes, "limit_files": self.limit_files}


class DownloadQuery(TreeQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: str = ""


class WatchQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recursive: bool = False


async def _down(request: Request, query: DownloadQuery) -> Response:
    if query.prefix and not is_clean(query.prefix):
        raise InvalidInputError("the prefix is not a relative path of names")
    content = _tar(request, query)
    # A tree that is missing, closed or small and broken is an answer, not a body that breaks off.
    first = await anext(content)
    return Content(service_of(request), first, content, media_type="application/x-tar")


async def _tar(request: Request, query: DownloadQuery) -> AsyncGenerator[bytes, None]:
    writer = TarWriter(query.prefix)
    began = False
    buffer = bytearray()
    async with files_of(request, query.user) as files:
        found = await files.stat(query.path)
        root = TreeEntry(
            ".", FileType.DIRECTORY, mode=found.mode, mtime_ms=found.mtime_ms,
            uid=found.uid, gid=found.gid,
        )  # fmt: skip
        try:
            async with aclosing(files.tree_read(query.path, **query.limits())) as parts:
                async for part in parts:
                    if isinstance(part, TreeSummary):
                        buffer += writer.end(root, part)
                    else:
                        buffer += writer.feed(part)
                    if len(buffer) >= _CHUNK:
                        yield bytes(buffer)
                        buffer.clear()
                        began = True
        except Exception as exc:
            if began:
                yield bytes(buffer) + writer.error(encode(problem(exc)))
            raise
        yield bytes(buffer)


async def _up(request: Request, query: TreeQuery) -> TreeWritten:
    reader = TarReader(**query.limits())
    async with (
        transfer_time(request),
        files_of(request, query.user) as files,
        aclosing(_records(request, reader)) as records,
    ):
        summary = await files.tree_write(query.path, records, **query.limits())
    if summary != reader.summary:
        raise GuestProtocolError("agentd lost a part of a tree")
    return TreeWritten(files=summary.files, bytes=summary.bytes)


async def _records(request: Request, reader: TarReader) -> AsyncGenerator[bytes, None]:
    async with aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            if records := b"".join(map(tree_bytes, reader.feed(piece))):
                yield records
    reader.finish()


async def _watch(request: Request, query: WatchQuery) -> Response:
    return await sse.stream(request, _changes(request, query), ping=sse.COMMENT)


async def _changes(request: Request, query: WatchQuery) -> AsyncGenerator[bytes, None]:
    """Ends with `end`, when what is watched is gone."""
    async with (
        files_of(request, query.user) as files,
        aclosing(files.watch(query.path, recursive=query.recursive)) as changes,
    ):
        async for change in changes:
            yield sse.event(change.kind.value, changed_of(change))
    yield sse.event("end", Ended())


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/tree", _down, needs="read", id="downloadTree", tag="files",
        summary="What is below a directory, as tar", answers={200: TAR},
    ),
    route(
        "PUT", "/v1/sandboxes/{id}/tree", _up, needs="exec", id="uploadTree", tag="files",
        summary="Unpack tar into a directory", upload=TAR,
    ),
    route(
        "GET", "/v1/sandboxes/{id}/watch", _watch, needs="read", id="watchFiles", tag="files",
        summary="What changes in a directory, or of a file, as it happens",
        answers={200: EVENTS},
        events={
            **{kind.value: Changed for kind in ChangeKind}, "end": Ended, "error": Problem,
        },
    ),
]  # fmt: skip
