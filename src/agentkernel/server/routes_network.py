"""A sandbox's network over HTTP: what it may reach, why, what it did; changed while it lives."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.kernel.network_control import NetworkState, Question, RuleChange
from agentkernel.network.policy.explain import Explanation
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.server.answers import Event, Gap, Problem
from agentkernel.server.app import service_of
from agentkernel.server.callers import check_network, check_rule, owner_of
from agentkernel.server.operations import EVENTS, route
from agentkernel.server.routes_events import EventQuery, LogQuery, stream_events

KINDS = (
    "network.allow",
    "network.deny",
    "network.secret",
    "network.blocked",
    "network.limit",
    "network.fault",
    "network.changed",
    "network.asked",
)


class PhaseChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    phase: Annotated[str, Meta(min_length=1, max_length=64)]


async def _show(request: Request) -> NetworkState:
    network = service_of(request).kernel.network
    return await network.show(request.path_params["id"], owner=owner_of(request))


async def _replace(request: Request, body: NetworkRequest) -> NetworkState:
    check_network(request, body)
    network = service_of(request).kernel.network
    return await network.replace(request.path_params["id"], body, owner=owner_of(request))


async def _add_rule(request: Request, body: RuleChange) -> NetworkState:
    check_rule(request, body)
    network = service_of(request).kernel.network
    return await network.add_rule(request.path_params["id"], body, owner=owner_of(request))


async def _phase(request: Request, body: PhaseChoice) -> NetworkState:
    network = service_of(request).kernel.network
    return await network.switch_phase(
        request.path_params["id"], body.phase, owner=owner_of(request)
    )


async def _why(request: Request, query: Question) -> Explanation:
    network = service_of(request).kernel.network
    return await network.why(request.path_params["id"], query, owner=owner_of(request))


async def _log(request: Request, query: LogQuery) -> Response:
    chosen = EventQuery(query.after, request.path_params["id"], query.follow)
    return await stream_events(request, chosen, kinds=KINDS)


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/network", _show, needs="read", id="getNetwork", tag="network",
        summary="What a sandbox may reach, and its traffic so far",
    ),
    route(
        "PUT", "/v1/sandboxes/{id}/network", _replace, needs="manage", id="replaceNetwork",
        tag="network", summary="Another network; what is not allowed any more is closed",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/network/rules", _add_rule, needs="manage",
        id="addNetworkRule", tag="network", summary="Put a rule before all others",
    ),
    route(
        "POST", "/v1/sandboxes/{id}/network/phase", _phase, needs="manage",
        id="switchNetworkPhase", tag="network", summary="Go on with the policy of another phase",
    ),
    route(
        "GET", "/v1/sandboxes/{id}/network/why", _why, needs="read", id="explainNetwork",
        tag="network", summary="What would become of a connection or a request, and why",
    ),
    route(
        "GET", "/v1/sandboxes/{id}/network/log", _log, needs="read", id="streamNetworkLog",
        tag="network", summary="Every decision about a sandbox's connections, with its rule",
        answers={200: EVENTS},
        events={"*": Event, "gap": Gap, "error": Problem},
        headers={"Last-Event-ID": "the last event that was seen; goes before `after`"},
    ),
]  # fmt: skip
