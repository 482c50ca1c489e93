"""What became of a sandbox's workspace, over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.server.app import service_of
from agentkernel.server.callers import owner_of
from agentkernel.server.operations import route
from agentkernel.workspaces.diffing import WorkspaceDiff


async def _diff(request: Request) -> WorkspaceDiff:
    return await service_of(request).kernel.workspaces.diff(
        request.path_params["id"], owner=owner_of(request)
    )


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/workspace/diff", _diff, needs="read", id="diffWorkspace",
        tag="sandboxes", summary="What a sandbox has changed in its copy-on-write workspace",
    ),
]  # fmt: skip
