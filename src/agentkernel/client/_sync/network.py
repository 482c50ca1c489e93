# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""What a sandbox may reach, asked and changed while it lives: `sandbox.network`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import Event
from agentkernel.client.wire import segment


class Network:
    """The network of one sandbox. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/network"

    def show(self) -> dict[str, Any]:
        """Phases with their rules, bound secrets, and the traffic so far."""
        body: dict[str, Any] = self._transport.call("GET", self._path)
        return body

    def replace(self, network: Mapping[str, Any]) -> dict[str, Any]:
        """Another network: `presets`, `allow`, `deny`, `rules`, `phases`, `phase`, `caps`. What it
        does not allow is closed when this returns."""
        body: dict[str, Any] = self._transport.call("PUT", self._path, json=dict(network))
        return body

    def allow(self, target: str, *, phase: str | None = None) -> dict[str, Any]:
        """Allows HOST[:PORT], before all other rules."""
        return self._add("allow", target, phase)

    def deny(self, target: str, *, phase: str | None = None) -> dict[str, Any]:
        """Denies HOST[:PORT], before all other rules; its open connections are closed."""
        return self._add("deny", target, phase)

    def phase(self, name: str) -> dict[str, Any]:
        """Goes on with the policy of another phase."""
        body: dict[str, Any] = self._transport.call(
            "POST", f"{self._path}/phase", json={"phase": name}
        )
        return body

    def why(
        self, host: str, port: int = 443, *, method: str | None = None, path: str | None = None
    ) -> dict[str, Any]:
        """What would become of a connection or request, by which rule, and what changes it."""
        query = {"host": host, "port": port, "method": method, "path": path}
        body: dict[str, Any] = self._transport.call("GET", f"{self._path}/why", query=query)
        return body

    def log(self, *, after: int = 0, follow: bool = False) -> Generator[Event, None]:
        """Every decision so far, with its rule; with `follow` also those to come."""
        query = {"after": after, "follow": int(follow)}
        with closing(self._transport.events(f"{self._path}/log", query=query)) as events:
            for kind, body in events:
                yield Event.of(kind, body)

    def _add(self, action: str, target: str, phase: str | None) -> dict[str, Any]:
        wanted = {"action": action, "target": target, "phase": phase}
        given = {key: value for key, value in wanted.items() if value is not None}
        body: dict[str, Any] = self._transport.call("POST", f"{self._path}/rules", json=given)
        return body
