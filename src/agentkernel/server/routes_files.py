"""Files over HTTP: content as bodies that are streamed both ways, the rest as JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from agentkernel.kernel.kernel import LOCAL_OWNER
from agentkernel.server.app import Service, route, service_of
from agentkernel.server.bodies import MakeDirectory, Move, entry_body, octal
from agentkernel.server.problems import (
    RequestError,
    json_response,
    log_internal,
    read_body,
    read_query,
)

# Between two pieces of an upload.
Count = Annotated[int, Meta(ge=0, le=1 << 62)]


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    offset: Count = 0
    length: Count | None = None


class _Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    mode: str | None = None
    append: bool = False
    parents: bool = False


class _Remove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    recursive: bool = False


class _Path(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class _Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    follow: bool = True


async def _read(request: Request) -> Response:
    service, id = service_of(request), request.path_params["id"]
    query = read_query(request, _Read)

    async def pieces() -> AsyncGenerator[bytes, None]:
        async with (
            service.kernel.files(id, owner=LOCAL_OWNER) as files,
            aclosing(
                files.read_stream(query.path, offset=query.offset, length=query.length)
            ) as stream,
        ):
            async for piece in stream:
                yield piece

    content = pieces()
    # What is wrong with the file shows here, while there still is a status to say it with.
    first = await anext(content, b"")
    return _Content(service, first, content)


class _Content(Response):
    """A body of unknown length. One that breaks off is cut off: it can't be taken for whole."""

    media_type = "application/octet-stream"

    def __init__(self, service: Service, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._service = service
        self._first = first
        self._rest = rest
        self.background = None
        self.status_code = 200
        self.init_headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest):
            with contextlib.suppress(Exception):
                await self._service.while_wanted(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for piece in self._rest:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as exc:
            log_internal(exc)
            raise
        await send({"type": "http.response.body", "body": b""})


async def _write(request: Request) -> Response:
    query = read_query(request, _Write)
    mode = octal(query.mode)
    async with (
        service_of(request).kernel.files(request.path_params["id"], owner=LOCAL_OWNER) as files,
        aclosing(_upload(request)) as pieces,
    ):
        write = files.append if query.append else files.write
        size = await write(query.path, pieces, mode=mode, parents=query.parents)
    return json_response({"size": size})


async def _upload(request: Request) -> AsyncGenerator[bytes, None]:
    stream: AsyncIterator[bytes] = aiter(request.stream())
    seconds = service_of(request).bounds.piece_seconds
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            raise RequestError(408, f"nothing more came within {seconds:g} s") from None
        if piece is None:
            return
        if piece:
            yield piece


async def _remove(request: Request) -> Response:
    query = read_query(request, _Remove)
    async with service_of(request).kernel.files(
        request.path_params["id"], owner=LOCAL_OWNER
    ) as files:
        await files.remove(query.path, recursive=query.recursive)
    return Response(status_code=204)


async def _stat(request: Request) -> Response:
    query = read_query(request, _Look)
    async with service_of(request).kernel.files(
        request.path_params["id"], owner=LOCAL_OWNER
    ) as files:
        return json_response(entry_body(await files.stat(query.path, follow=query.follow)))


async def _list(request: Request) -> Response:
    query = read_query(request, _Path)
    async with service_of(request).kernel.files(
        request.path_params["id"], owner=LOCAL_OWNER
    ) as files:
        entries = await files.list(query.path)
    return json_response({"entries": [entry_body(entry) for entry in entries]})


async def _mkdir(request: Request) -> Response:
    body = await read_body(request, MakeDirectory)
    async with service_of(request).kernel.files(
        request.path_params["id"], owner=LOCAL_OWNER
    ) as files:
        await files.mkdir(body.path, mode=octal(body.mode), parents=body.parents)
    return Response(status_code=204)


async def _move(request: Request) -> Response:
    body = await read_body(request, Move)
    async with service_of(request).kernel.files(
        request.path_params["id"], owner=LOCAL_OWNER
    ) as files:
        await files.move(body.path, body.to, replace=body.replace)
    return Response(status_code=204)


ROUTES: list[BaseRoute] = [
    route("GET", "/v1/sandboxes/{id}/files", _read),
    route("PUT", "/v1/sandboxes/{id}/files", _write),
    route("DELETE", "/v1/sandboxes/{id}/files", _remove),
    route("GET", "/v1/sandboxes/{id}/stat", _stat),
    route("GET", "/v1/sandboxes/{id}/list", _list),
    route("POST", "/v1/sandboxes/{id}/mkdir", _mkdir),
    route("POST", "/v1/sandboxes/{id}/move", _move),
]
