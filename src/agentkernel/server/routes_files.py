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
from agentkernel.server.app import route, service_of
from agentkernel.server.bodies import MakeDirectory, Move, entry_body, octal
from agentkernel.server.callers import owner_of
from agentkernel.server.content import Content, transfer_time, uploaded
from agentkernel.server.problems import RequestError, json_response, read_body, read_query

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})\Z")


class OnPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every query about files has."""

    path: str
    user: str | None = None


class _Read(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offset: Count | None = None
    length: Count | None = None


class _Write(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str | None = None
    append: bool = False
    parents: bool = False


class _Remove(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recursive: bool = False


class _Look(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    follow: bool = True


def files_of(request: Request, user: str | None) -> AbstractAsyncContextManager[GuestFiles]:
    """The files of the request's sandbox, with the rights of `user`."""
    kernel = service_of(request).kernel
    return kernel.files(request.path_params["id"], owner=owner_of(request), user=user)


async def _read(request: Request) -> Response:
    service = service_of(request)
    query = read_query(request, _Read)
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


async def _write(request: Request) -> Response:
    query = read_query(request, _Write)
    mode = octal(query.mode)
    async with (
        transfer_time(request),
        files_of(request, query.user) as files,
        aclosing(uploaded(request)) as pieces,
    ):
        write = files.append if query.append else files.write
        size = await write(query.path, pieces, mode=mode, parents=query.parents)
    return json_response({"size": size})


async def _remove(request: Request) -> Response:
    query = read_query(request, _Remove)
    async with files_of(request, query.user) as files:
        await files.remove(query.path, recursive=query.recursive)
    return Response(status_code=204)


async def _stat(request: Request) -> Response:
    query = read_query(request, _Look)
    async with files_of(request, query.user) as files:
        return json_response(entry_body(await files.stat(query.path, follow=query.follow)))


async def _list(request: Request) -> Response:
    query = read_query(request, OnPath)
    async with files_of(request, query.user) as files:
        entries = await files.list(query.path)
    return json_response({"entries": [entry_body(entry) for entry in entries]})


async def _mkdir(request: Request) -> Response:
    body = await read_body(request, MakeDirectory)
    async with files_of(request, body.user) as files:
        await files.mkdir(body.path, mode=octal(body.mode), parents=body.parents)
    return Response(status_code=204)


async def _move(request: Request) -> Response:
    body = await read_body(request, Move)
    async with files_of(request, body.user) as files:
        await files.move(body.path, body.to, replace=body.replace)
    return Response(status_code=204)


ROUTES: list[BaseRoute] = [
    route("GET", "/v1/sandboxes/{id}/files", _read, needs="read"),
    route("PUT", "/v1/sandboxes/{id}/files", _write, needs="exec"),
    route("DELETE", "/v1/sandboxes/{id}/files", _remove, needs="exec"),
    route("GET", "/v1/sandboxes/{id}/stat", _stat, needs="read"),
    route("GET", "/v1/sandboxes/{id}/list", _list, needs="read"),
    route("POST", "/v1/sandboxes/{id}/mkdir", _mkdir, needs="exec"),
    route("POST", "/v1/sandboxes/{id}/move", _move, needs="exec"),
]
