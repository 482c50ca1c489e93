# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Tokens of a daemon: who may use it over a network. For callers with the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.client._sync.transport import Transport, shared_transport
from agentkernel.client.results import TokenInfo
from agentkernel.client.wire import segment


def create_token(
    name: str,
    *,
    owner: str | None = None,
    scopes: Sequence[str] | None = None,
    expires_seconds: float | None = None,
    transport: Transport | None = None,
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
    return TokenInfo.of(transport.call("POST", "/v1/tokens", json=body))


def list_tokens(*, transport: Transport | None = None) -> list[TokenInfo]:
    """All tokens, with those that ended lately."""
    transport = transport or shared_transport()
    body = transport.call("GET", "/v1/tokens")
    return [TokenInfo.of(entry) for entry in body["tokens"]]


def revoke_token(id: str, *, transport: Transport | None = None) -> TokenInfo:
    """Ends a token, by id or name, and all that it holds open."""
    transport = transport or shared_transport()
    return TokenInfo.of(transport.call("DELETE", f"/v1/tokens/{segment(id)}"))
