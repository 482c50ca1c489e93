"""Tokens of a daemon: who may use it over a network. For callers with the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence

from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client.results import TokenInfo
from agentkernel.client.wire import segment


class AsyncTokens:
    """Those of one daemon: `Host().tokens`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        owner: str | None = None,
        scopes: Sequence[str] | None = None,
        expires_seconds: float | None = None,
    ) -> TokenInfo:
        """A new token. Its `token` is what a caller shows, and is given this one time only."""
        wanted = {
            "name": name,
            "owner": owner,
            "scopes": None if scopes is None else [*scopes],
            "expires_seconds": expires_seconds,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        return TokenInfo.of(await self._transport.call("POST", "/v1/tokens", json=body))

    async def revoke(self, id: str) -> TokenInfo:
        """Ends a token, by id or name, and all that it holds open."""
        return TokenInfo.of(await self._transport.call("DELETE", f"/v1/tokens/{segment(id)}"))

    async def list(self) -> list[TokenInfo]:
        """All tokens, with those that ended lately."""
        body = await self._transport.call("GET", "/v1/tokens")
        return [TokenInfo.of(entry) for entry in body["tokens"]]
