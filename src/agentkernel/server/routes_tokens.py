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
from agentkernel.server.app import service_of
from agentkernel.server.callers import Scope, caller_of
from agentkernel.server.operations import route
from agentkernel.server.problems import json_response


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`owner`: whose sandboxes there are for it; one of its own unless given."""

    name: str
    owner: str | None = None
    scopes: tuple[Scope, ...] = DEFAULT_SCOPES
    expires_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as shown: neither its secret, which nobody has, nor the secret's hash."""

    id: str
    name: str
    owner: str
    scopes: list[str]
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None


class MadeToken(Token, frozen=True, kw_only=True):
    """`token`: what to show, told this once."""

    token: str


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[Token]


def _shown(record: TokenRecord) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(record)
    del body["sha256"]
    return body


async def _create(request: Request, body: NewToken) -> Response:
    caller = caller_of(request)
    for scope in body.scopes:
        caller.check(scope)  # nobody gives away what they have not
    made = await service_of(request).kernel.tokens.create(
        body.name,
        acts_as=body.owner,
        scopes=body.scopes,
        expires_seconds=body.expires_seconds,
    )
    response = json_response(MadeToken(**_shown(made.record), token=made.text), 201)
    response.headers["Cache-Control"] = "no-store"
    return response


async def _list(request: Request) -> TokenList:
    records = service_of(request).kernel.tokens.list()
    return TokenList(tokens=[Token(**_shown(record)) for record in records])


async def _revoke(request: Request) -> Token:
    record = await service_of(request).kernel.tokens.revoke(request.path_params["token"])
    return Token(**_shown(record))


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/tokens", _create, needs="admin", id="createToken", tag="tokens",
        summary="Make a token; its text is in this answer and nowhere else",
        answers={201: MadeToken},
    ),
    route(
        "GET", "/v1/tokens", _list, needs="admin", id="listTokens", tag="tokens",
        summary="All tokens, also those that ended",
    ),
    route(
        "DELETE", "/v1/tokens/{token}", _revoke, needs="admin", id="revokeToken", tag="tokens",
        summary="End a token, by id or name, and all that it holds open",
    ),
]  # fmt: skip
