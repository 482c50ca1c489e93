"""A session begins: what has to be made for it is told, an agent's installation above all."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from agentkernel.cli.agent_calls import PATH
from agentkernel.cli.outcome import say_progress
from agentkernel.client._sync.transport import Transport
from agentkernel.client.wire import broken


def start(transport: Transport, body: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """The session, once the agent runs. It takes as long as what is made for it."""
    with closing(transport.events(PATH, method="POST", json=body)) as events:
        for kind, told in events:
            if kind == "progress" and not quiet:
                say_progress(str(told.get("text")))
            elif kind == "session":
                return told
    raise broken("a session that did not begin")
