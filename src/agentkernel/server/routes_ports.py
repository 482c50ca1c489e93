"""Published ports over HTTP: opened, listed, closed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.config.addresses import joined, split_address
from agentkernel.errors import InvalidInputError
from agentkernel.kernel.ports import PortState
from agentkernel.server.app import Service, service_of
from agentkernel.server.callers import caller_of, may_publish, owner_of
from agentkernel.server.operations import route
from agentkernel.server.preview_heads import TOKEN_PARAMETER
from agentkernel.server.problems import json_response


class NewPort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`port`: [[ADDRESS:]HOST_PORT:]PORT, or preview:PORT for a preview alone. `public`: its
    preview asks for no token."""

    port: Annotated[str, Meta(max_length=64)]
    public: bool = False


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A published port. `address` and `host_port`: where it is on the daemon's machine; null: as a
    preview alone. `preview_url` is there while the daemon listens on a network, with the token for
    those who may run commands. `error` says why it is not open."""

    port: int
    address: str | None
    host_port: int | None
    public: bool
    open: bool
    error: str | None
    preview_host: str
    preview_path: str
    preview_url: str | None
    token: str | UnsetType = UNSET


class PortList(msgspec.Struct, frozen=True, kw_only=True):
    ports: list[Port]


def _shown(service: Service, id: str, state: PortState, *, token: bool) -> Port:
    published = state.published
    host = f"{published.port}-{id}.{service.preview_domain}"
    url = None
    if service.url is not None:
        scheme, _, where = service.url.partition("://")
        number = split_address(where)[1]
        at = host if number == (443 if scheme == "https" else 80) else joined(host, number)
        url = f"{scheme}://{at}/"
        if token and not published.public:
            url += f"?{TOKEN_PARAMETER.decode()}={published.token}"
    return Port(
        port=published.port,
        address=published.address,
        host_port=published.host_port or None if published.address else None,
        public=published.public,
        open=state.open,
        error=state.error,
        preview_host=host,
        preview_path=f"/preview/{id}/{published.port}/",
        preview_url=url,
        token=published.token if token else UNSET,
    )


async def _publish(request: Request, body: NewPort) -> Response:
    service, owner = service_of(request), owner_of(request)
    may_publish(request, body.port, public=body.public)
    record = await service.kernel.get(request.path_params["id"], owner=owner)
    state = await service.kernel.ports.publish(
        record.id, body.port, public=body.public, owner=owner
    )
    return _private(json_response(_shown(service, record.id, state, token=_trusted(request)), 201))


async def _list(request: Request) -> Response:
    service, owner = service_of(request), owner_of(request)
    record = await service.kernel.get(request.path_params["id"], owner=owner)
    states = await service.kernel.ports.list(record.id, owner=owner)
    token = _trusted(request)
    shown = [_shown(service, record.id, state, token=token) for state in states]
    return _private(json_response(PortList(ports=shown)))


async def _unpublish(request: Request) -> None:
    text = request.path_params["port"]
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise InvalidInputError("a port inside is a number")
    await service_of(request).kernel.ports.unpublish(
        request.path_params["id"], int(text), owner=owner_of(request)
    )


def _trusted(request: Request) -> bool:
    """A preview's token reaches a server inside, as whoever may run commands does anyway."""
    return "exec" in caller_of(request).scopes


def _private(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/sandboxes/{id}/ports", _list, needs="read", id="listPorts", tag="sandboxes",
        summary="The published ports of a sandbox, and whether each is open",
        answers={200: PortList},
    ),
    route(
        "POST", "/v1/sandboxes/{id}/ports", _publish, needs="manage", id="publishPort",
        tag="sandboxes", summary="Open a port of a sandbox on the daemon's machine, and as preview",
        answers={201: Port},
    ),
    route(
        "DELETE", "/v1/sandboxes/{id}/ports/{port}", _unpublish, needs="manage",
        id="unpublishPort", tag="sandboxes",
        summary="Close a published port and what is connected to it",
    ),
]  # fmt: skip
