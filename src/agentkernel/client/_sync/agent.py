# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""An agent in a sandbox that is prompted: `sandbox.agent("claude")`.

with Sandbox.create(agents=["claude"], workspace=".") as sandbox:
    turn = sandbox.agent("claude").prompt("fix the tests")
    print(turn.text, turn.stop_reason)
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any

from agentkernel.client._sync.agent_sessions import AgentSession, AgentSessions
from agentkernel.client._sync.transport import Transport
from agentkernel.client.agent_requests import (
    AgentTurn,
    OnPermission,
    Progress,
    turn_result,
)
from agentkernel.client.socket_stream import Lock
from agentkernel.client.wire import broken
from agentkernel.errors import InvalidInputError


class Agent:
    """One conversation with an agent that speaks ACP. It starts with the first prompt, and what it
    does is a session of the daemon's: `session`. The end of its `with` block, or `close`, ends the
    agent; its sandbox stays as it is."""

    def __init__(
        self,
        transport: Transport,
        sandbox: str,
        name: str | None = None,
        *,
        command: Sequence[str] | None = None,
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        mcp: Sequence[Mapping[str, Any]] | None = None,
        resume: str | None = None,
        on_permission: OnPermission | None = None,
        progress: Progress | None = None,
    ) -> None:
        if (name is None) == (command is None):
            raise InvalidInputError("an agent has either a name or a command")
        self.session: AgentSession | None = None
        self._transport = transport
        self._on_permission = on_permission
        self._starting = Lock()
        self._wanted: dict[str, Any] = {
            "sandbox": None if resume is not None else sandbox,
            "model": model,
            "env": env,
            "mcp": mcp,
            "resume": resume,
            "progress": progress,
        }
        self._name = name or "agent"
        self._options: dict[str, Any] = {"attended": on_permission is not None}
        if command is not None:
            self._options["command"] = [str(word) for word in command]

    def start(self) -> AgentSession:
        """What the first prompt does by itself."""
        with self._starting:
            if self.session is None:
                sessions = AgentSessions(self._transport)
                self.session = sessions.start(
                    self._name, mode="acp", options=self._options, **self._wanted
                )
            return self.session

    def prompt(self, text: str) -> AgentTurn:
        """A turn to its end. ConflictError while another is under way."""
        turn = self.stream(text)
        for _ in turn:
            pass
        return turn.result

    def stream(self, text: str) -> AgentStream:
        """A turn whose updates are read while it goes on; `result` is there at its end."""
        return AgentStream(self, text, self._on_permission)

    def cancel(self) -> None:
        """Ends the turn that is under way, if one is: its stop reason is `cancelled`."""
        if self.session is not None:
            self.session.cancel()

    def close(self) -> None:
        """Ends the agent. Another one goes on with the conversation: `resume=agent.session.id`."""
        if self.session is not None:
            self.session.stop()

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AgentStream:
    """The updates of a turn, as ACP has them (`sessionUpdate` says what each is). Iterate it to the
    end; leaving it early leaves the turn alone."""

    def __init__(self, agent: Agent, text: str, on_permission: OnPermission | None) -> None:
        self._result: AgentTurn | None = None
        self._updates = self._carry_out(agent, text, on_permission)

    @property
    def result(self) -> AgentTurn:
        if self._result is None:
            raise InvalidInputError("the turn has not ended", hint="read its updates to the end")
        return self._result

    def __iter__(self) -> Generator[dict[str, Any], None]:
        return self._updates

    def _carry_out(
        self, agent: Agent, text: str, on_permission: OnPermission | None
    ) -> Generator[dict[str, Any], None]:
        session = agent.start()
        after = (session.refresh())["last_event"]
        session.send_prompt(text)
        updates: list[dict[str, Any]] = []
        with closing(session.events(after=after)) as events:
            for event in events:
                if (ended := turn_result(event)) is not None:
                    usage = (session.refresh()).get("usage") or {}
                    self._result = AgentTurn.of(ended, updates, usage)
                    return
                body = event.get("body") or {}
                if event["kind"] == "agent":
                    update = body.get("update")
                    if isinstance(update, dict):
                        updates.append(update)
                        yield update
                elif event["kind"] == "permission" and on_permission and "request" in body:
                    session.answer(body["id"], on_permission(body["request"]))
        raise broken("a session that ended before its turn did")
