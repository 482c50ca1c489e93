"""Agents over HTTP: which there are, installed and removed.

What is run to install one stands in files of this package and of the daemon's user. No caller says
it: they name an agent, and those who may see the machine a version.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.kernel.agents.kit_model import AgentDetails, AgentInfo, InstallRequest, KitInfo
from agentkernel.kernel.building.model import Report
from agentkernel.server import sse
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of
from agentkernel.server.operations import route
from agentkernel.server.problems import json_response
from agentkernel.server.routes_builds import BUILD_EVENTS
from agentkernel.server.step_events import nobody, step_events

# As many events wait for a slow reader; then the installation waits.
_KINDS: Final = {kind: name for name, kind in BUILD_EVENTS.items()}
INSTALL_EVENTS: Final[dict[str, Any]] = {**BUILD_EVENTS, "installed": KitInfo}
del INSTALL_EVENTS["built"]


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[AgentInfo]


async def _list(request: Request) -> AgentList:
    return AgentList(agents=await service_of(request).kernel.agents.kits.list())


async def _show(request: Request) -> AgentDetails:
    return await service_of(request).kernel.agents.kits.get(request.path_params["agent"])


async def _install(request: Request, body: InstallRequest) -> Response:
    service, caller = service_of(request), caller_of(request)
    kits, name = service.kernel.agents.kits, request.path_params["agent"]
    sees_host = "host-paths" in caller.scopes
    host_env = body.host_env if sees_host else {}
    if body.version is not None and not body.update:
        raise InvalidInputError("a version is chosen by an update", hint="set update, too")
    if body.update and not sees_host:
        # Also without one: then the one that somebody chose does not count any more.
        raise PolicyDeniedError(
            "to choose an agent's version, for everybody, needs the scope host-paths, which the "
            "caller has not",
            hint="without an update: the version that is chosen is installed",
            needed="host-paths",
        )

    async def work(report: Report) -> KitInfo:
        if body.update:
            return await kits.update(
                name, report=report, version=body.version, host_env=host_env, owner=caller.owner
            )
        return await kits.install(name, report=report, host_env=host_env, owner=caller.owner)

    if sse.is_wanted(request):
        return await sse.stream(request, step_events(work, _KINDS, "installed"))
    return json_response(await service.while_wanted(request.receive, work(nobody)))


async def _remove(request: Request) -> None:
    await service_of(request).kernel.agents.kits.remove(
        request.path_params["agent"], owner=caller_of(request).owner
    )


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/agents", _list, needs="read", id="listAgents", tag="agents",
        summary="The agents that are known, and which of them are installed",
    ),
    route(
        "GET", "/v1/agents/{agent}", _show, needs="read", id="getAgent", tag="agents",
        summary="An agent: all that its file says, and its installations",
    ),
    route(
        "POST", "/v1/agents/{agent}/install", _install, needs="manage", id="installAgent",
        tag="agents", answers={200: KitInfo}, events=INSTALL_EVENTS,
        summary="Install an agent, or another version of it; as events with steps and output",
    ),
    route(
        "DELETE", "/v1/agents/{agent}/kit", _remove, needs="manage", id="removeAgentKit",
        tag="agents", summary="Remove an agent's installations; a session installs it again",
    ),
]  # fmt: skip
