"""Sessions: an agent at work in a sandbox, with what it said and did: `kernel.agents.sessions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from agentkernel.agents.reading import Definitions
from agentkernel.backends.base import Progress
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.model import (
    AgentEvent,
    AgentRequest,
    AgentSession,
    AgentSummary,
    SessionPage,
    SessionState,
)
from agentkernel.workspaces.applying import WorkspaceApplied
from agentkernel.workspaces.diffing import WorkspaceDiff


class Sessions:
    """See the module."""

    def __init__(self, definitions: Definitions, kits: Kits, logins: Logins) -> None:
        self._definitions = definitions
        self._kits = kits
        self._logins = logins

    async def start(
        self, request: AgentRequest, *, owner: str = "local", progress: Progress | None = None
    ) -> AgentSession:
        """Returns when the agent runs. When it raises, nothing of it is left."""
        raise NotImplementedError

    async def get(self, id: str, *, owner: str | None = None) -> AgentSession:
        raise NotImplementedError

    async def list(
        self,
        *,
        owner: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        states: Sequence[SessionState] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> SessionPage:
        """The newest first. `project`: the directory of this machine that they work on."""
        raise NotImplementedError

    async def stop(self, id: str, *, owner: str | None = None) -> AgentSession:
        """Ends the agent: TERM, then all that is left of it. Its sandbox stays."""
        raise NotImplementedError

    async def remove(
        self, id: str, *, owner: str | None = None, keep_sandbox: bool = False
    ) -> None:
        """The session with its log and recording; and its sandbox, if it was made for it."""
        raise NotImplementedError

    def events(
        self, id: str, *, owner: str | None = None, after: int = 0, follow: bool = True
    ) -> AsyncIterator[AgentEvent]:
        """Its log after a seq; with `follow` to the session's end."""
        raise NotImplementedError

    async def prompt(self, id: str, text: str, *, owner: str | None = None) -> AgentSession:
        """Begins a turn of an acp session; its events tell the rest, the last one of kind "prompt"
        with the stop reason. Raises ConflictError while another is under way."""
        raise NotImplementedError

    async def cancel(self, id: str, *, owner: str | None = None) -> None:
        raise NotImplementedError

    async def answer(
        self, id: str, permission: str, option: str | None, *, owner: str | None = None
    ) -> None:
        raise NotImplementedError

    async def summary(self, id: str, *, owner: str | None = None) -> AgentSummary:
        raise NotImplementedError

    async def diff(self, id: str, *, owner: str | None = None) -> WorkspaceDiff:
        raise NotImplementedError

    async def apply(
        self,
        id: str,
        paths: Sequence[str] = (),
        *,
        allow_risky: bool = False,
        mark_conflicts: bool = False,
        commit: str | None = None,
        owner: str | None = None,
    ) -> WorkspaceApplied:
        raise NotImplementedError

    async def recording(self, id: str, *, owner: str | None = None) -> Path:
        """The session's asciicast. Raises NotFoundError if nothing was recorded."""
        raise NotImplementedError
