# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Secrets of a daemon, for sandboxes that use them without knowing them. For callers with the scope
`manage`; nobody gets a value back."""

from __future__ import annotations

from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import SecretInfo
from agentkernel.client.wire import quote


class Secrets:
    """Those of the caller: `Host().secrets`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def set(self, name: str, value: str) -> SecretInfo:
        """A new secret; one of that name gets this value instead of its own."""
        return self._put(name, {"value": value})

    def rotate(self, name: str, value: str) -> SecretInfo:
        """Another value for a secret that is there, which its sandboxes use at once."""
        return self._put(name, {"value": value, "rotate": True})

    def remove(self, name: str) -> SecretInfo:
        """Removes a secret. `sandboxes` of the answer can't use it any more."""
        return SecretInfo.of(self._transport.call("DELETE", f"/v1/secrets/{quote(name)}"))

    def list(self) -> list[SecretInfo]:
        """By name."""
        body = self._transport.call("GET", "/v1/secrets")
        return [SecretInfo.of(entry) for entry in body["secrets"]]

    def _put(self, name: str, body: dict[str, object]) -> SecretInfo:
        path = f"/v1/secrets/{quote(name)}"
        return SecretInfo.of(self._transport.call("PUT", path, json=body))
