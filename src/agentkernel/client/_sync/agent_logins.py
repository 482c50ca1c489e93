# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Logins with agents, kept by the daemon outside of sandboxes. For callers with the scope `manage`;
nobody gets a token back."""

from __future__ import annotations

from builtins import list as List
from typing import Any

from agentkernel.client._sync.transport import LONG_CALL_SECONDS, Transport
from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import segment


class AgentLogins:
    """Those of the caller: `Host().agents.logins`. What comes back are the objects of the HTTP API:
    `kind`, `state`, `account`, `expires_at`, `enters` and so on."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[dict[str, Any]]:
        """One for each agent there is, by name; `kind` is "none" without a login."""
        body = self._transport.call("GET", "/v1/agent-logins")
        found: List[dict[str, Any]] = body["logins"]
        return found

    def get(self, agent: str) -> dict[str, Any]:
        return self._call("GET", agent)

    def take_file(self, agent: str, text: str) -> dict[str, Any]:
        """Takes over a login from the text of the file that the agent itself keeps it in."""
        return self._call("PUT", agent, json={"file": text})

    def set_key(self, agent: str, key: str, *, name: str | None = None) -> dict[str, Any]:
        """An API key, kept as the secret `name`: the first that the agent takes, unless given."""
        body = {"key": key} | ({} if name is None else {"name": name})
        return self._call("PUT", agent, json=body)

    def remove(self, agent: str) -> dict[str, Any]:
        """Forgets it; what the provider knows of it stays there."""
        return self._call("DELETE", agent)

    def refresh(self, agent: str) -> dict[str, Any]:
        """A new access token now, which sandboxes use at once. Raises LoginError."""
        return self._call("POST", agent, "/refresh", seconds=LONG_CALL_SECONDS)

    def begin(self, agent: str) -> dict[str, Any]:
        """A `sandbox` to run the agent's own login in: `command` with `env`, on a terminal. The
        login is inside it until `harvest`."""
        body = {"host_env": host_environment(self._transport.daemon)}
        return self._call("POST", agent, "/begin", json=body, seconds=LONG_CALL_SECONDS)

    def harvest(self, agent: str, sandbox: str) -> dict[str, Any]:
        """Takes the login out of that sandbox, which is removed in any case."""
        return self._call("POST", agent, "/harvest", json={"sandbox": sandbox})

    def _call(self, method: str, agent: str, below: str = "", **how: Any) -> dict[str, Any]:
        path = f"/v1/agents/{segment(agent)}/login{below}"
        body: dict[str, Any] = self._transport.call(method, path, **how)
        return body
