"""What became of a sandbox's workspace, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of, owner_of
from agentkernel.server.operations import route
from agentkernel.workspaces.applying import WorkspaceApplied
from agentkernel.workspaces.diffing import WorkspaceDiff


class Apply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`paths`: only these and what is below them, from the workspace's top. `allow_risky`: also
    what makes other programs of the user run something. `mark_conflicts`: lines that both sides
    have changed are both written, between marks, instead of none. `commit`: a commit with this
    message (empty: one of ours) instead of changed files."""

    paths: Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=1024)] = []
    allow_risky: bool = False
    mark_conflicts: bool = False
    commit: Annotated[str, Meta(max_length=65536)] | None = None


async def _diff(request: Request) -> WorkspaceDiff:
    return await service_of(request).kernel.workspaces.diff(
        request.path_params["id"], owner=owner_of(request)
    )


async def _apply(request: Request, body: Apply) -> WorkspaceApplied:
    # It writes files of this machine, which are the user's.
    caller_of(request).check("host-paths")
    return await service_of(request).kernel.workspaces.apply(
        request.path_params["id"],
        body.paths,
        allow_risky=body.allow_risky,
        mark_conflicts=body.mark_conflicts,
        commit=body.commit,
        owner=owner_of(request),
    )


async def _discard(request: Request) -> None:
    await service_of(request).kernel.workspaces.discard(
        request.path_params["id"], owner=owner_of(request)
    )


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/workspace/diff", _diff, needs="read", id="diffWorkspace",
        tag="sandboxes", summary="What a sandbox has changed in its copy-on-write workspace",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/workspace/apply", _apply, needs="manage",
        id="applyWorkspace", tag="sandboxes",
        summary="Make a sandbox's changes in the directory itself; needs the scope host-paths",
    ),
    route(
        "DELETE", "/v1/sandboxes/{id}/workspace", _discard, needs="manage",
        id="discardWorkspace", tag="sandboxes",
        summary="Forget the changes of a stopped sandbox in its workspace",
    ),
]  # fmt: skip
