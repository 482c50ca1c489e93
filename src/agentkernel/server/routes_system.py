"""What everything takes on the disk, over HTTP, and what of it can go."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.kernel.disk_records import DiskUsage, Pruned
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of
from agentkernel.server.operations import route


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes besides what nobody would miss. `sandboxes`: the caller's own that are stopped.
    `volumes`: the caller's own that no sandbox has. `dry_run`: nothing goes, it is told only."""

    sandboxes: bool = False
    volumes: bool = False
    dry_run: bool = False


async def _df(request: Request) -> DiskUsage:
    return await service_of(request).kernel.system.df()


async def _prune(request: Request, body: Prune) -> Pruned:
    return await service_of(request).kernel.system.prune(
        owner=caller_of(request).owner,
        sandboxes=body.sandboxes,
        volumes=body.volumes,
        dry_run=body.dry_run,
    )


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/system/df", _df, needs="read", id="getDiskUsage", tag="daemon",
        summary="What sandboxes, volumes, images and records take on the disk",
    ),
    route(
        "POST", "/v1/system/prune", _prune, needs="manage", id="pruneSystem", tag="daemon",
        summary="Remove what nobody needs: unused layers and blobs, and what is asked for besides",
    ),
]  # fmt: skip
