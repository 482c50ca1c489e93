"""What a sandbox may reach, asked and changed while it lives: `sandbox.network`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client.results import Event
from agentkernel.client.wire import segment


class AsyncNetwork:
    """The network of one sandbox. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"/v1/sandboxes/{segment(sandbox)}/network"

    async def show(self) -> dict[str, Any]:
        """Phases with their rules, bound secrets, and the traffic so far."""
        body: dict[str, Any] = await self._transport.call("GET", self._path)
        return body

    async def replace(self, network: Mapping[str, Any]) -> dict[str, Any]:
        """Another network: `presets`, `allow`, `deny`, `rules`, `phases`, `phase`, `caps`. What it
        does not allow is closed when this returns."""
        body: dict[str, Any] = await self._transport.call("PUT", self._path, json=dict(network))
        return body

    async def allow(self, target: str, *, phase: str | None = None) -> dict[str, Any]:
        """Allows HOST[:PORT], before all other rules."""
        return await self._add("allow", target, phase)

    async def deny(self, target: str, *, phase: str | None = None) -> dict[str, Any]:
        """Denies HOST[:PORT], before all other rules; its open connections are closed."""
        return await self._add("deny", target, phase)

    async def phase(self, name: str) -> dict[str, Any]:
        """Goes on with the policy of another phase."""
        body: dict[str, Any] = await self._transport.call(
            "POST", f"{self._path}/phase", json={"phase": name}
        )
        return body

    async def why(
        self, host: str, port: int = 443, *, method: str | None = None, path: str | None = None
    ) -> dict[str, Any]:
        """What would become of a connection or request, by which rule, and what changes it."""
        query = {"host": host, "port": port, "method": method, "path": path}
        body: dict[str, Any] = await self._transport.call("GET", f"{self._path}/why", query=query)
        return body

    async def log(self, *, after: int = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """Every decision so far, with its rule; with `follow` also those to come."""
        query = {"after": after, "follow": int(follow)}
        async with aclosing(self._transport.events(f"{self._path}/log", query=query)) as events:
            async for kind, body in events:
                yield Event.of(kind, body)

    async def _add(self, action: str, target: str, phase: str | None) -> dict[str, Any]:
        wanted = {"action": action, "target": target, "phase": phase}
        given = {key: value for key, value in wanted.items() if value is not None}
        body: dict[str, Any] = await self._transport.call("POST", f"{self._path}/rules", json=given)
        return body
