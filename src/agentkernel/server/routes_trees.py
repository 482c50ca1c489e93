"""Directories over HTTP: as tar both ways, and what changes in them as events.

Tar becomes the guest's records and the records tar, a piece at a time: nothing of a tree is held,
and no archive is ever unpacked on this side of the sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import GuestProtocolError, InvalidInputError
from agentkernel.guest.file_types import Change, tree_bytes
from agentkernel.server.app import Service, route, service_of
from agentkernel.server.bodies import change_body
from agentkernel.server.content import Content, transfer_time, uploaded
from agentkernel.server.problems import encode, json_response, problem, read_query
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

PING_SECONDS: Final = 15.0
_CHUNK: Final = 1 << 16
_Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]
_Files = Annotated[int, Meta(ge=0, le=100_000_000)]


class _Tree(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit_bytes: _Bytes = DEFAULT_TREE_BYTES
    limit_files: _Files = DEFAULT_TREE_FILES

    def limits(self) -> dict[str, int]:
        return {"limit_bytes": self.limit_bytes, "limit_files": self.limit_files}


class _Down(_Tree, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: str = ""


class _Watch(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recursive: bool = False


async def _down(request: Request) -> Response:
    query = read_query(request, _Down)
    if query.prefix and not is_clean(query.prefix):
        raise InvalidInputError("the prefix is not a relative path of names")
    content = _tar(request, query)
    # A tree that is missing, closed or small and broken is an answer, not a body that breaks off.
    first = await anext(content)
    return Content(service_of(request), first, content, media_type="application/x-tar")


async def _tar(request: Request, query: _Down) -> AsyncGenerator[bytes, None]:
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


async def _up(request: Request) -> Response:
    query = read_query(request, _Tree)
    reader = TarReader(**query.limits())
    async with (
        transfer_time(request),
        files_of(request, query.user) as files,
        aclosing(_records(request, reader)) as records,
    ):
        summary = await files.tree_write(query.path, records, **query.limits())
    if summary != reader.summary:
        raise GuestProtocolError("agentd lost a part of a tree")
    return json_response({"files": summary.files, "bytes": summary.bytes})


async def _records(request: Request, reader: TarReader) -> AsyncGenerator[bytes, None]:
    async with aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            if records := b"".join(map(tree_bytes, reader.feed(piece))):
                yield records
    reader.finish()


async def _watch(request: Request) -> Response:
    service = service_of(request)
    query = read_query(request, _Watch)
    with service.stream():
        pass  # one too many is still an answer here
    events = _follow(service, _changes(request, query))
    # What can't be watched is an answer; the first event says that it is.
    first = await anext(events)
    return Content(
        service,
        first,
        events,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
        lasting=True,
    )


async def _changes(request: Request, query: _Watch) -> AsyncGenerator[Change, None]:
    async with (
        files_of(request, query.user) as files,
        aclosing(files.watch(query.path, recursive=query.recursive)) as changes,
    ):
        async for change in changes:
            yield change


async def _follow(
    service: Service, changes: AsyncGenerator[Change, None]
) -> AsyncGenerator[bytes, None]:
    """Ends with `end`, when what is watched is gone, or with `error`."""
    async with aclosing(changes):
        yield _event(await anext(changes))
        end = asyncio.ensure_future(service.over())
        step = asyncio.ensure_future(_next(changes))
        try:
            with service.stream():
                while not end.done():
                    await asyncio.wait(
                        (step, end), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not step.done():
                        yield b": ping\n\n"
                        continue
                    change = step.result()
                    if change is None:
                        yield b"event: end\ndata: {}\n\n"
                        return
                    step = asyncio.ensure_future(_next(changes))
                    yield _event(change)
                raise end.result()
        except Exception as exc:
            yield b"event: error\ndata: " + encode(problem(exc)) + b"\n\n"
        finally:
            end.cancel()
            step.cancel()
            await asyncio.wait((step,))


async def _next(changes: AsyncIterator[Change]) -> Change | None:
    return await anext(changes, None)


def _event(change: Change) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (change.kind.encode(), encode(change_body(change)))


ROUTES: list[BaseRoute] = [
    route("GET", "/v1/sandboxes/{id}/tree", _down, needs="read"),
    route("PUT", "/v1/sandboxes/{id}/tree", _up, needs="exec"),
    route("GET", "/v1/sandboxes/{id}/watch", _watch, needs="read"),
]
