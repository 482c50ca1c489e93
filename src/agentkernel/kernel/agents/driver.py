"""The seam between a session and whoever speaks to its agent on stdio (mode "acp").

A session reads the agent's stdout, keeps the log and knows when the job ends; a driver knows the
protocol. Lines come from inside: a driver believes nothing of them and never raises for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agentkernel.agents.model import AgentUsage, McpServer
from agentkernel.kernel.agents.model import AgentEvent, EventKind


class Wire(Protocol):
    """What a session gives to its driver."""

    async def send(self, line: bytes) -> None:
        """One line to the agent's stdin, without its end. Raises SandboxUnavailableError."""

    def tell(self, kind: EventKind, body: dict[str, Any]) -> AgentEvent | None:
        """An event of the session's log: "agent" for each session/update (its `params`),
        "permission" for each question {"id", "request"} and its answer {"id", "answer"}."""

    def found(self, conversation: str) -> None:
        """The agent's own id of the conversation, for the row and for `--continue`."""

    def used(self, usage: AgentUsage) -> None:
        """All that the session has used so far, as the agent says."""


class Driver(Protocol):
    """One session's. `begin` is called once and first; `feed` may come at any time after it was
    called, `prompt` not before it has returned."""

    async def begin(
        self,
        *,
        cwd: str,
        mcp: Sequence[McpServer],
        load: str | None = None,
        running: str | None = None,
        asked: Sequence[AgentEvent] = (),
    ) -> None:
        """The handshake. `load`: a conversation to go on with. `running`: the agent has been
        spoken to before, by a daemon that is gone, in this conversation: nothing is sent, `cwd` is
        known from then, and `asked` are permission questions that nobody has answered. Raises
        AgentKernelError if the agent can't be used."""

    def feed(self, line: bytes) -> None:
        """One line that the agent wrote, without its end, at most `MAX_LINE` bytes."""

    async def prompt(self, text: str) -> dict[str, Any]:
        """One turn; the result of session/prompt. Raises AgentKernelError."""

    async def rest(self) -> dict[str, Any]:
        """After `begin` with `running`: the result of the turn that was under way, which may have
        come meanwhile. Raises AgentKernelError."""

    async def cancel(self) -> None:
        """Ends the turn early; `prompt` returns with the stop reason "cancelled". Permission
        questions are answered with "cancelled"."""

    async def answer(self, permission: str, option: str | None) -> None:
        """To a permission question. None: cancelled. Raises NotFoundError, InvalidInputError."""

    def lost(self) -> None:
        """The agent is gone: who waits for it raises."""
