"""Secrets of a daemon, for sandboxes that use them without knowing them. For callers with the scope
`manage`; nobody gets a value back."""

from __future__ import annotations

from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client.results import SecretInfo
from agentkernel.client.wire import quote


class AsyncSecrets:
    """Those of the caller: `Host().secrets`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def set(self, name: str, value: str) -> SecretInfo:
        """A new secret; one of that name gets this value instead of its own."""
        return await self._put(name, {"value": value})

    async def rotate(self, name: str, value: str) -> SecretInfo:
        """Another value for a secret that is there, which its sandboxes use at once."""
        return await self._put(name, {"value": value, "rotate": True})

    async def remove(self, name: str) -> SecretInfo:
        """Removes a secret. `sandboxes` of the answer can't use it any more."""
        return SecretInfo.of(await self._transport.call("DELETE", f"/v1/secrets/{quote(name)}"))

    async def list(self) -> list[SecretInfo]:
        """By name."""
        body = await self._transport.call("GET", "/v1/secrets")
        return [SecretInfo.of(entry) for entry in body["secrets"]]

    async def _put(self, name: str, body: dict[str, object]) -> SecretInfo:
        path = f"/v1/secrets/{quote(name)}"
        return SecretInfo.of(await self._transport.call("PUT", path, json=body))
