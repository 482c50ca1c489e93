"""Agents of a daemon: which there are, and their installations."""

from __future__ import annotations

from builtins import list as List
from contextlib import aclosing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._async.agent_logins import AsyncAgentLogins
from agentkernel.client._async.builds import Told
from agentkernel.client._async.transport import LONG_CALL_SECONDS, AsyncTransport
from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import segment


class AsyncAgents:
    """`Host().agents`. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self.logins = AsyncAgentLogins(transport)

    async def list(self) -> List[dict[str, Any]]:
        """By name; `kit` is what is installed of each."""
        body = await self._transport.call("GET", "/v1/agents")
        found: List[dict[str, Any]] = body["agents"]
        return found

    async def get(self, name: str) -> dict[str, Any]:
        """With its whole `definition`, and what its installations take. NotFoundError if there is
        none."""
        body: dict[str, Any] = await self._transport.call("GET", f"/v1/agents/{segment(name)}")
        return body

    async def install(self, name: str, *, progress: Told | None = None) -> dict[str, Any]:
        """Now rather than with its first session; what is there already is not made again.
        `progress` is called with the name and the body of each event. Raises AgentInstallError."""
        return await self._installed(name, {}, progress)

    async def update(
        self, name: str, *, version: str | None = None, progress: Told | None = None
    ) -> dict[str, Any]:
        """To the version that is pinned now, or to `version` from now on. Older installations that
        no sandbox has go; sandboxes that are there keep theirs."""
        wanted = {"update": True} | ({} if version is None else {"version": version})
        return await self._installed(name, wanted, progress)

    async def remove(self, name: str) -> None:
        """All installations of it. ConflictError while a sandbox has one."""
        await self._transport.call(
            "DELETE", f"/v1/agents/{segment(name)}/kit", seconds=LONG_CALL_SECONDS
        )

    async def _installed(
        self, name: str, wanted: dict[str, Any], progress: Told | None
    ) -> dict[str, Any]:
        body = {"host_env": host_environment(self._transport.daemon), **wanted}
        path = f"/v1/agents/{segment(name)}/install"
        async with aclosing(self._transport.events(path, method="POST", json=body)) as events:
            async for kind, told in events:
                if kind == "installed":
                    return told
                if progress is not None:
                    progress(kind, told)
        raise wire.broken("an installation that did not come to an end")
