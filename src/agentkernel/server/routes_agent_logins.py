"""Logins with agents over HTTP: taken over, shown, forgotten. No answer ever has a token.

Each caller has those of its own owner, and no scope reaches another's. Where a login is refreshed
is what the agent's definition says: no request can name it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.agents.credentials import MOST_BYTES
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.agents.login_model import LoginBox, LoginStatus
from agentkernel.network.secrets.store import Hidden
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of
from agentkernel.server.operations import route

# JSON in JSON: its quotes are escaped.
_MOST_BYTES = 4 * MOST_BYTES


class GivenLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of them: `file`, the text of the file that the agent itself keeps its login in; or `key`,
    an API key, kept as the secret `name` (the agent's first, unless given)."""

    file: Annotated[str, Meta(min_length=1, max_length=MOST_BYTES)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=MOST_BYTES)] | None = None
    name: Annotated[str, Meta(max_length=64)] | None = None

    def __repr__(self) -> str:
        return "GivenLogin(…)"


class LoginBegin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`host_env`: as in a sandbox's."""

    host_env: Annotated[dict[str, str], Meta(max_length=64)] = {}


class LoginHarvest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sandbox`: the one that was made for this login."""

    sandbox: Annotated[str, Meta(min_length=1, max_length=64)]


class LoginList(msgspec.Struct, frozen=True, kw_only=True):
    logins: list[LoginStatus]


async def _list(request: Request) -> LoginList:
    logins = service_of(request).kernel.agents.logins
    return LoginList(logins=await logins.list(owner=caller_of(request).owner))


async def _show(request: Request) -> LoginStatus:
    logins = service_of(request).kernel.agents.logins
    return await logins.status(request.path_params["agent"], owner=caller_of(request).owner)


async def _put(request: Request, body: GivenLogin) -> LoginStatus:
    logins = service_of(request).kernel.agents.logins
    agent, owner = request.path_params["agent"], caller_of(request).owner
    if body.file is not None and body.key is None and body.name is None:
        given = Hidden(body.file.encode("utf-8", "surrogatepass"))
        return await logins.take(agent, given, owner=owner)
    if body.key is not None and body.file is None:
        given = Hidden(body.key.encode("utf-8", "surrogatepass"))
        return await logins.take_key(agent, given, name=body.name, owner=owner)
    raise InvalidInputError("a login is given as a file or as a key, one of them")


async def _remove(request: Request) -> LoginStatus:
    logins = service_of(request).kernel.agents.logins
    return await logins.remove(request.path_params["agent"], owner=caller_of(request).owner)


async def _refresh(request: Request) -> LoginStatus:
    logins = service_of(request).kernel.agents.logins
    return await logins.refresh(request.path_params["agent"], owner=caller_of(request).owner)


async def _begin(request: Request, body: LoginBegin) -> LoginBox:
    service, caller = service_of(request), caller_of(request)
    host_env = body.host_env if "host-paths" in caller.scopes else {}
    work = service.kernel.agents.login_boxes.open(
        request.path_params["agent"], host_env=host_env, owner=caller.owner
    )
    return await service.while_wanted(request.receive, work)


async def _harvest(request: Request, body: LoginHarvest) -> LoginStatus:
    boxes = service_of(request).kernel.agents.login_boxes
    agent, owner = request.path_params["agent"], caller_of(request).owner
    return await boxes.harvest(body.sandbox, agent, owner=owner)


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/agent-logins", _list, needs="manage", id="listAgentLogins", tag="agents",
        summary="The caller's own logins with agents, without their tokens",
    ),
    route(
        "GET", "/v1/agents/{agent}/login", _show, needs="manage", id="getAgentLogin",
        tag="agents", summary="The caller's login with an agent, and what of it enters sandboxes",
    ),
    route(
        "PUT", "/v1/agents/{agent}/login", _put, needs="manage", id="setAgentLogin",
        tag="agents", most_bytes=_MOST_BYTES,
        summary="Take over a login from the agent's own file, or an API key",
    ),
    route(
        "DELETE", "/v1/agents/{agent}/login", _remove, needs="manage", id="removeAgentLogin",
        tag="agents", summary="Forget a login; what the provider knows of it stays there",
    ),
    route(
        "POST", "/v1/agents/{agent}/login/refresh", _refresh, needs="manage",
        id="refreshAgentLogin", tag="agents",
        summary="Ask for a new access token now, which sandboxes use at once",
    ),
    route(
        "POST", "/v1/agents/{agent}/login/begin", _begin, needs="manage", id="beginAgentLogin",
        tag="agents", status=201,
        summary="A sandbox to run the agent's own login in, on a terminal",
    ),
    route(
        "POST", "/v1/agents/{agent}/login/harvest", _harvest, needs="manage",
        id="harvestAgentLogin", tag="agents",
        summary="Take a login out of the sandbox that was made for it, and remove that",
    ),
]  # fmt: skip
