"""Which session somebody means."""

from __future__ import annotations

from typing import Final

from agentkernel.client._sync.agent_sessions import AgentSession, AgentSessions
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import NotFoundError

_SEARCHED: Final = 200


def find_session(transport: Transport, text: str) -> AgentSession:
    """By id, or the newest one in a sandbox of that name. Raises NotFoundError."""
    sessions = AgentSessions(transport)
    try:
        return sessions.get(text)
    except NotFoundError:
        for session in sessions.list(limit=_SEARCHED):
            if session.info["sandbox_name"] == text:
                return session
        raise
