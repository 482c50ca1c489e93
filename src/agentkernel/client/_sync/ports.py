# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Ports of a sandbox: opened on the daemon's machine, and as previews."""

from __future__ import annotations

from builtins import list as List

from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import PortInfo
from agentkernel.client.wire import segment


class Ports:
    """Those of one sandbox: `sandbox.ports`."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/ports"

    def publish(self, port: int | str, *, public: bool = False) -> PortInfo:
        """Opens a port of the sandbox: `8000`, `"8080:8000"`, `"0:8000"` (a port that is free),
        `"127.0.0.1:8080:8000"`, or `"preview:8000"` as a preview alone. With `public` its preview
        asks for no token. It stays published over restarts."""
        body = {"port": str(port), "public": public}
        return PortInfo.of(self._transport.call("POST", self._path, json=body))

    def unpublish(self, port: int) -> None:
        """Closes a port, by its number inside, and what is connected to it."""
        self._transport.call("DELETE", f"{self._path}/{segment(str(port))}")

    def list(self) -> List[PortInfo]:
        """Those that are published, and whether each is open."""
        body = self._transport.call("GET", self._path)
        return [PortInfo.of(entry) for entry in body["ports"]]
