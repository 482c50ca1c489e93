"""Volumes over HTTP: made, looked at, removed, and as tar both ways.

No archive is unpacked on this side: what comes in goes into a sandbox that has the volume alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.kernel.volume_records import VolumeInfo
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of, owner_of
from agentkernel.server.content import Content, transfer_time, uploaded
from agentkernel.server.operations import TAR, route

_Quota = Annotated[int, Meta(ge=1, le=1 << 60)] | None
EVERYONE = "*"


class NewVolume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`quota_bytes`: the size of a disk of its own; refused where it can't be enforced.
    `exclusive`: at most one sandbox at a time runs with it."""

    name: str
    quota_bytes: _Quota = None
    exclusive: bool = False


class VolumeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`usage`: with what each takes on the disk, which is found by looking at all files."""

    owner: str | None = None
    usage: bool = False


class RemoveQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`force`: also if stopped sandboxes have it, which can't be started any more then."""

    force: bool = False


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    quota_bytes: _Quota = None
    exclusive: bool = False


class VolumeList(msgspec.Struct, frozen=True, kw_only=True):
    volumes: list[VolumeInfo]


async def _create(request: Request, body: NewVolume) -> VolumeInfo:
    volumes = service_of(request).kernel.volumes
    record = await volumes.create(
        body.name,
        owner=caller_of(request).owner,
        quota_bytes=body.quota_bytes,
        exclusive=body.exclusive,
    )
    return await volumes.inspect(record.id)


async def _list(request: Request, query: VolumeQuery) -> VolumeList:
    caller = caller_of(request)
    owner = caller.owner if query.owner is None else query.owner
    if owner != caller.owner:
        caller.check("admin")
    found = await service_of(request).kernel.volumes.list(
        None if owner == EVERYONE else owner, usage=query.usage
    )
    return VolumeList(volumes=found)


async def _show(request: Request) -> VolumeInfo:
    return await service_of(request).kernel.volumes.inspect(
        request.path_params["volume"], owner=owner_of(request)
    )


async def _remove(request: Request, query: RemoveQuery) -> None:
    await service_of(request).kernel.volumes.remove(
        request.path_params["volume"], owner=owner_of(request), force=query.force
    )


async def _export(request: Request) -> Response:
    content = _archive(request)
    # A volume that is missing or in use is an answer, not a body that breaks off.
    first = await anext(content)
    return Content(service_of(request), first, content, media_type=TAR)


async def _archive(request: Request) -> AsyncGenerator[bytes, None]:
    volumes, id = service_of(request).kernel.volumes, request.path_params["volume"]
    async with volumes.export(id, owner=owner_of(request)) as pieces:
        async for piece in pieces:
            yield piece


async def _import(request: Request, query: ImportQuery) -> VolumeInfo:
    volumes = service_of(request).kernel.volumes
    async with transfer_time(request), aclosing(uploaded(request)) as pieces:
        record = await volumes.import_archive(
            request.path_params["volume"],
            pieces,
            owner=caller_of(request).owner,
            quota_bytes=query.quota_bytes,
            exclusive=query.exclusive,
        )
    return await volumes.inspect(record.id)


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/volumes", _create, needs="manage", id="createVolume", tag="volumes",
        summary="Make an empty volume", status=201,
    ),
    route(
        "GET", "/v1/volumes", _list, needs="read", id="listVolumes", tag="volumes",
        summary="All volumes, and which sandboxes have them",
    ),
    route(
        "GET", "/v1/volumes/{volume}", _show, needs="read", id="getVolume", tag="volumes",
        summary="A volume, who has it, and what it takes on the disk",
    ),
    route(
        "DELETE", "/v1/volumes/{volume}", _remove, needs="manage", id="removeVolume",
        tag="volumes", summary="Remove a volume with all that is in it",
    ),
    route(
        "GET", "/v1/volumes/{volume}/archive", _export, needs="read", id="exportVolume",
        tag="volumes", summary="All that is in a volume, as tar", answers={200: TAR},
    ),
    route(
        "PUT", "/v1/volumes/{volume}/archive", _import, needs="manage", id="importVolume",
        tag="volumes", summary="Make a new volume from tar; it is there whole, or not at all",
        status=201, upload=TAR,
    ),
]  # fmt: skip
