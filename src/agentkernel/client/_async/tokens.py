"""Tokens of a daemon: who may use it over a network. For callers with the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.client._async.transport import AsyncTransport, shared_transport
from agentkernel.client.results import TokenInfo
from agentkernel.client.wire import segment


async def create_token(
    name: str,
    *,
    owner: str | None = None,
    scopes: Sequence[str] | None = None,
    expires_seconds: float | None = None,
    transport: AsyncTransport | None = None,
) -> TokenInfo:
    """A new token. Its `token` is what a caller shows, and is given this one time only."""
    wanted = {
        "name": name,
        "owner": owner,
        "scopes": None if scopes is None else list(scopes),
        "expires_seconds": expires_seconds,
    }
    transport = transport or shared_transport()
    body = {key: value for key, value in wanted.items() if value is not None}
    return TokenInfo.of(await transport.call("POST", "/v1/tokens", json=body))


async def list_tokens(*, transport: AsyncTransport | None = None) -> list[TokenInfo]:
    """All tokens, with those that ended lately."""
    transport = transport or shared_transport()
    body = await transport.call("GET", "/v1/tokens")
    return [TokenInfo.of(entry) for entry in body["tokens"]]


async def revoke_token(id: str, *, transport: AsyncTransport | None = None) -> TokenInfo:
    """Ends a token, by id or name, and all that it holds open."""
    transport = transport or shared_transport()
    return TokenInfo.of(await transport.call("DELETE", f"/v1/tokens/{segment(id)}"))
