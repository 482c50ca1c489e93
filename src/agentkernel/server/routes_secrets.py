"""Secrets over HTTP: set, rotated, listed, removed. No answer ever has a value.

Each caller has those of its own owner, and no scope reaches another's.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import BaseRoute

from agentkernel.kernel.secrets import SecretInfo
from agentkernel.network.secrets.placeholders import MAX_VALUE_BYTES, MIN_VALUE_BYTES
from agentkernel.network.secrets.store import Hidden
from agentkernel.server.app import service_of
from agentkernel.server.callers import caller_of
from agentkernel.server.operations import route

_MOST_BYTES = 64 << 10


class SecretValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rotate`: only if there is a secret of that name."""

    # Said, not checked here: the store's own words are of more use to people.
    value: Annotated[
        str,
        Meta(
            extra_json_schema={
                "minLength": MIN_VALUE_BYTES,
                "maxLength": MAX_VALUE_BYTES,
                "pattern": "^[!-~][ -~]*[!-~]$",
            }
        ),
    ]
    rotate: bool = False

    def __repr__(self) -> str:
        return "SecretValue(…)"


class SecretList(msgspec.Struct, frozen=True, kw_only=True):
    secrets: list[SecretInfo]


async def _put(request: Request, body: SecretValue) -> SecretInfo:
    secrets = service_of(request).kernel.secrets
    put = secrets.rotate if body.rotate else secrets.set
    value = Hidden(body.value.encode("utf-8", "surrogatepass"))
    return await put(request.path_params["name"], value, owner=caller_of(request).owner)


async def _list(request: Request) -> SecretList:
    kernel = service_of(request).kernel
    return SecretList(secrets=await kernel.secrets.list(owner=caller_of(request).owner))


async def _remove(request: Request) -> SecretInfo:
    kernel = service_of(request).kernel
    return await kernel.secrets.remove(request.path_params["name"], owner=caller_of(request).owner)


ROUTES: list[BaseRoute] = [
    route(
        "GET", "/v1/secrets", _list, needs="manage", id="listSecrets", tag="secrets",
        summary="The caller's own secrets, without their values",
    ),
    route(
        "PUT", "/v1/secrets/{name}", _put, needs="manage", id="setSecret", tag="secrets",
        summary="Set a secret, or give it another value, which sandboxes use at once",
        most_bytes=_MOST_BYTES,
    ),
    route(
        "DELETE", "/v1/secrets/{name}", _remove, needs="manage", id="removeSecret", tag="secrets",
        summary="Remove a secret; sandboxes that it is bound to can't use it any more",
    ),
]  # fmt: skip
