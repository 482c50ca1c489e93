"""Tokens over HTTP: made, listed, revoked. For those alone who may do everything else."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.kernel.store import TokenRecord
from agentkernel.kernel.tokens import DEFAULT_SCOPES
from agentkernel.server.app import route, service_of
from agentkernel.server.callers import Scope, caller_of
from agentkernel.server.problems import json_response, read_body


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`owner`: whose sandboxes there are for it; one of its own unless given."""

    name: str
    owner: str | None = None
    scopes: tuple[Scope, ...] = DEFAULT_SCOPES
    expires_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


def token_body(record: TokenRecord) -> dict[str, Any]:
    """A token as shown: neither its secret, which nobody has, nor the secret's hash."""
    body: dict[str, Any] = msgspec.to_builtins(record)
    del body["sha256"]
    return body


async def _create(request: Request) -> Response:
    body = await read_body(request, NewToken)
    caller = caller_of(request)
    for scope in body.scopes:
        caller.check(scope)  # nobody gives away what they have not
    made = await service_of(request).kernel.tokens.create(
        body.name,
        acts_as=body.owner,
        scopes=body.scopes,
        expires_seconds=body.expires_seconds,
    )
    response = json_response({**token_body(made.record), "token": made.text}, 201)
    response.headers["Cache-Control"] = "no-store"
    return response


async def _list(request: Request) -> Response:
    records = service_of(request).kernel.tokens.list()
    return json_response({"tokens": [token_body(record) for record in records]})


async def _revoke(request: Request) -> Response:
    record = await service_of(request).kernel.tokens.revoke(request.path_params["id"])
    return json_response(token_body(record))


ROUTES: list[BaseRoute] = [
    route("POST", "/v1/tokens", _create, needs="admin"),
    route("GET", "/v1/tokens", _list, needs="admin"),
    route("DELETE", "/v1/tokens/{id}", _revoke, needs="admin"),
]
