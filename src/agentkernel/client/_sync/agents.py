# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Agents of a daemon: which there are, and their installations."""

from __future__ import annotations

from builtins import list as List
from contextlib import closing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._sync.agent_logins import AgentLogins
from agentkernel.client._sync.builds import Told
from agentkernel.client._sync.transport import LONG_CALL_SECONDS, Transport
from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import segment


class Agents:
    """`Host().agents`. What comes back are the objects of the HTTP API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.logins = AgentLogins(transport)

    def list(self) -> List[dict[str, Any]]:
        """By name; `kit` is what is installed of each."""
        body = self._transport.call("GET", "/v1/agents")
        found: List[dict[str, Any]] = body["agents"]
        return found

    def get(self, name: str) -> dict[str, Any]:
        """With its whole `definition`, and what its installations take. NotFoundError if there is
        none."""
        body: dict[str, Any] = self._transport.call("GET", f"/v1/agents/{segment(name)}")
        return body

    def install(self, name: str, *, progress: Told | None = None) -> dict[str, Any]:
        """Now rather than with its first session; what is there already is not made again.
        `progress` is called with the name and the body of each event. Raises AgentInstallError."""
        return self._installed(name, {}, progress)

    def update(
        self, name: str, *, version: str | None = None, progress: Told | None = None
    ) -> dict[str, Any]:
        """To the version that is pinned now, or to `version` from now on. Older installations that
        no sandbox has go; sandboxes that are there keep theirs."""
        wanted = {"update": True} | ({} if version is None else {"version": version})
        return self._installed(name, wanted, progress)

    def remove(self, name: str) -> None:
        """All installations of it. ConflictError while a sandbox has one."""
        self._transport.call(
            "DELETE", f"/v1/agents/{segment(name)}/kit", seconds=LONG_CALL_SECONDS
        )

    def _installed(
        self, name: str, wanted: dict[str, Any], progress: Told | None
    ) -> dict[str, Any]:
        body = {"host_env": host_environment(self._transport.daemon), **wanted}
        path = f"/v1/agents/{segment(name)}/install"
        with closing(self._transport.events(path, method="POST", json=body)) as events:
            for kind, told in events:
                if kind == "installed":
                    return told
                if progress is not None:
                    progress(kind, told)
        raise wire.broken("an installation that did not come to an end")
