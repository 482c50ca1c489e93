"""The server as streamable HTTP, below a path of the daemon.

Its tools reach the daemon as those on stdio do, through its socket: what a client may do is decided
in one place. A session belongs to the caller that opened it, and its sandboxes to that caller and
the client's name.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from agentkernel.kernel.life import LOCAL_OWNER
from agentkernel.mcp.operator import Operator
from agentkernel.mcp.service import Service
from agentkernel.server.callers import owner_of

# A page of another site that had its name point here would say that name.
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]", "agentkernel")
MAX_BODY = 16 << 20
MAX_SESSIONS = 256
IDLE_SECONDS = 30 * 60.0


@asynccontextmanager
async def serving(
    operator: Operator,
    state_dir: str,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
) -> AsyncIterator[ASGIApp]:
    """The application while it works; what is under way is ended at the end. `hosts`, `origins`:
    names and pages that the daemon's door lets in besides this machine's own."""
    # What it writes about failures may hold what was in a message, and the daemon's log must not.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    service = Service(operator, state_dir=state_dir, principal=_principal)
    manager = StreamableHTTPSessionManager(
        service.server(),
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*hosts, *LOCAL_HOSTS, *(f"{host}:*" for host in LOCAL_HOSTS)],
            allowed_origins=[*origins],
        ),
        max_request_body_size=MAX_BODY,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # A session is found by its id only with the identity that opened it.
        owner = owner_of(HTTPConnection(scope))
        token = AccessToken(token="-", client_id=owner, scopes=[])
        await manager.handle_request({**scope, "user": AuthenticatedUser(token)}, receive, send)

    async with manager.run():
        yield app


def _principal(request: Any) -> str | None:
    owner = owner_of(request)
    return None if owner == LOCAL_OWNER else owner
