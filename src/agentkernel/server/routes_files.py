"""Files over HTTP: content as bodies that are streamed both ways, the rest as JSON."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import GuestProtocolError, InvalidInputError
from agentkernel.guest.files import GuestFiles
from agentkernel.server.answers import Entry, EntryList, Written, entry_of
from agentkernel.server.app import service_of
from agentkernel.server.bodies import MakeDirectory, Move, octal
from agentkernel.server.callers import owner_of
from agentkernel.server.content import Content, transfer_time, uploaded
from agentkernel.server.operations import BYTES, route
from agentkernel.server.problems import RequestError

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})\Z")


class OnPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every query about files has."""

    path: str
    user: str | None = None


class ReadQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offset: Count | None = None
    length: Count | None = None


class WriteQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str | None = None
    append: bool = False
    parents: bool = False


class RemoveQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recursive: bool = False


class StatQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    follow: bool = True


def files_of(request: Request, user: str | None) -> AbstractAsyncContextManager[GuestFiles]:
    """The files of the request's sandbox, with the rights of `user`."""
    kernel = service_of(request).kernel
    return kernel.files(request.path_params["id"], owner=owner_of(request), user=user)


async def _read(request: Request, query: ReadQuery) -> Response:
    service = service_of(request)
    asked = request.headers.get("range")
    if asked is not None and (query.offset is not None or query.length is not None):
        raise InvalidInputError("a range is asked for twice", hint="by header or by query")
    part = None
    if asked is not None:
        async with files_of(request, query.user) as files:
            part = _byte_range(asked, (await files.stat(query.path)).size)

    async def pieces() -> AsyncGenerator[bytes, None]:
        offset, length = (query.offset or 0, query.length) if part is None else part[:2]
        sent = 0
        async with (
            files_of(request, query.user) as files,
            aclosing(files.read_stream(query.path, offset=offset, length=length)) as stream,
        ):
            async for piece in stream:
                sent += len(piece)
                yield piece
        if part is not None and sent != length:
            raise GuestProtocolError("the file became shorter than the range that was promised")

    content = pieces()
    # What is wrong with the file shows here, while there still is a status to say it with.
    first = await anext(content, b"")
    if part is None:
        return Content(service, first, content)
    offset, length, size = part
    told = {"Content-Range": f"bytes {offset}-{offset + length - 1}/{size}"}
    return Content(service, first, content, status=206, headers=told)


def _byte_range(header: str, size: int) -> tuple[int, int, int] | None:
    """Offset, length and the file's size; None: not a range we have to understand."""
    match = _RANGE.match(header.strip())
    if not match or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), size if last == "" else min(int(last) + 1, size)
        if last and int(last) < start:
            return None
    if start >= end:
        raise RequestError(416, f"the file has {size} bytes, and none in this range")
    return start, end - start, size


async def _write(request: Request, query: WriteQuery) -> Written:
    mode = octal(query.mode)
    async with (
        transfer_time(request),
        files_of(request, query.user) as files,
        aclosing(uploaded(request)) as pieces,
    ):
        write = files.append if query.append else files.write
        size = await write(query.path, pieces, mode=mode, parents=query.parents)
    return Written(size=size)


async def _remove(request: Request, query: RemoveQuery) -> None:
    async with files_of(request, query.user) as files:
        await files.remove(query.path, recursive=query.recursive)


async def _stat(request: Request, query: StatQuery) -> Entry:
    async with files_of(request, query.user) as files:
        return entry_of(await files.stat(query.path, follow=query.follow))


async def _list(request: Request, query: OnPath) -> EntryList:
    async with files_of(request, query.user) as files:
        entries = await files.list(query.path)
    return EntryList(entries=[entry_of(entry) for entry in entries])


async def _mkdir(request: Request, body: MakeDirectory) -> None:
    async with files_of(request, body.user) as files:
        await files.mkdir(body.path, mode=octal(body.mode), parents=body.parents)


async def _move(request: Request, body: Move) -> None:
    async with files_of(request, body.user) as files:
        await files.move(body.path, body.to, replace=body.replace)


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/files", _read, needs="read", id="readFile", tag="files",
        summary="The content of a file, or a range of it",
        answers={200: BYTES, 206: BYTES},
        headers={"Range": "one range of bytes; instead of `offset` and `length`"},
    ),
    route(
        "PUT", "/v1/sandboxes/{id}/files", _write, needs="exec", id="writeFile", tag="files",
        summary="Replace a file, whole or not at all, or append to it", upload=BYTES,
    ),
    route(
        "DELETE", "/v1/sandboxes/{id}/files", _remove, needs="exec", id="removeFile", tag="files",
        summary="Remove a file, or a directory with all that is in it",
    ),
    route(
        "GET", "/v1/sandboxes/{id}/stat", _stat, needs="read", id="statFile", tag="files",
        summary="What a file is",
    ),
    route(
        "GET", "/v1/sandboxes/{id}/list", _list, needs="read", id="listFiles", tag="files",
        summary="The files of a directory",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/mkdir", _mkdir, needs="exec", id="makeDirectory", tag="files",
        summary="Make a directory",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/move", _move, needs="exec", id="moveFile", tag="files",
        summary="Move a file or a directory",
    ),
]  # fmt: skip
