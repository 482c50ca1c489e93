"""Names of secrets that are made by other commands than `secret set`."""

from __future__ import annotations

import re
from typing import Final

_ACCESS: Final = re.compile(r"agent-([a-z0-9][a-z0-9-]{0,31})-access")


def access_name(agent: str) -> str:
    """The access token of a login with an agent, which sandboxes are bound to."""
    return f"agent-{agent}-access"


def login_variable(agent: str) -> str:
    """Has the placeholder of that token inside. What an agent needs with such a login only is told
    by it; of several agents in a sandbox each has its own."""
    return f"AGENTKERNEL_LOGIN_{agent.upper().replace('-', '_')}"


def refresh_name(agent: str) -> str:
    """Its refresh token. With dots: no binding, list or call of a user can name it."""
    return f"agent.{agent}.refresh"


def made_by(name: str) -> str:
    """The command that makes a secret of that name."""
    if login := _ACCESS.fullmatch(name):
        return f"agentkernel agent login {login[1]}"
    return f"agentkernel secret set {name}"
