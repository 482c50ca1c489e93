"""A session begins: what has to be made for it is told, an agent's installation above all."""

from __future__ import annotations

from typing import Any

from agentkernel.cli.agent_calls import PATH
from agentkernel.client._sync.transport import Transport


def start(transport: Transport, body: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    session: dict[str, Any] = transport.call("POST", PATH, json=body, seconds=1800)
    return session
