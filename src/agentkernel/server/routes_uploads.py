"""Several files in one request, as forms send them: each is written as it comes, whole or not at
all."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.errors import InvalidInputError
from agentkernel.server.answers import Text, text_or_bytes
from agentkernel.server.bodies import octal
from agentkernel.server.content import transfer_time, uploaded
from agentkernel.server.multipart import MultipartReader, Part, boundary_of
from agentkernel.server.operations import route
from agentkernel.server.routes_files import OnPath, files_of
from agentkernel.trees.entries import is_clean, to_bytes

FORM: Final = "multipart/form-data"


class UploadQuery(OnPath, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str | None = None


class UploadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, as the part called it."""

    path: Text = UNSET
    path_b64: Text = UNSET
    size: int


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    files: list[UploadedFile]


async def _upload(request: Request, query: UploadQuery) -> Uploaded:
    reader = MultipartReader(boundary_of(request.headers.get("content-type", "")))
    mode = octal(query.mode)
    written: list[UploadedFile] = []
    async with (
        transfer_time(request),
        files_of(request, query.user) as files,
        aclosing(_events(request, reader)) as events,
    ):
        async for event in events:
            if not isinstance(event, Part):
                continue
            name = event.filename
            if name is None or not is_clean(name):
                raise InvalidInputError(
                    f"the part {event.name!r} has no filename that is a relative path of names",
                    hint="each part is a file; its filename is where it goes, below `path`",
                )
            target = posixpath.join(query.path, name)
            size = await files.write(target, _content(events), mode=mode, parents=True)
            written.append(UploadedFile(**text_or_bytes("path", to_bytes(name)), size=size))
    return Uploaded(files=written)


async def _events(
    request: Request, reader: MultipartReader
) -> AsyncGenerator[Part | bytes | None, None]:
    async with aclosing(uploaded(request)) as pieces:
        async for piece in pieces:
            for event in reader.feed(piece):
                yield event
    reader.finish()


async def _content(
    events: AsyncGenerator[Part | bytes | None, None],
) -> AsyncGenerator[bytes, None]:
    """Of the part that began: up to its end, which is there or the body is damaged."""
    async for event in events:
        if not isinstance(event, bytes):
            return
        yield event


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/sandboxes/{id}/files", _upload, needs="exec", id="uploadFiles", tag="files",
        summary="Write several files below a directory; each part's filename says where",
        upload=FORM,
    ),
]  # fmt: skip
