# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""Sessions of agents: `Host().agent_sessions`, and one of them.

session = Host().agent_sessions.start("claude", "fix the tests", workspace=".")
for event in session.events(): ...
print((session.summary())["changed"])
"""

from __future__ import annotations

from builtins import list as List
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from agentkernel.client import wire
from agentkernel.client._sync.commands import CommandStream
from agentkernel.client._sync.jobs import find_job
from agentkernel.client._sync.transport import (
    LONG_CALL_SECONDS,
    Transport,
    shared_transport,
)
from agentkernel.client.agent_requests import Progress, session_body, turn_result
from agentkernel.client.wire import segment
from agentkernel.errors import DaemonError

_PAGE = 500
_TRIES = 5


class AgentSession:
    """One session. `info` is what was known when it was asked last, as the HTTP API says it."""

    def __init__(self, transport: Transport, info: dict[str, Any]) -> None:
        self.info = info
        self._transport = transport
        self._path = f"/v1/agent-sessions/{segment(info['id'])}"

    @property
    def id(self) -> str:
        return str(self.info["id"])

    def refresh(self) -> dict[str, Any]:
        self.info = self._transport.call("GET", self._path)
        return self.info

    def events(
        self, *, after: int = 0, follow: bool = True
    ) -> Generator[dict[str, Any], None]:
        """What it says and does, from behind event `after`; with `follow` live to its end, also
        across a daemon that is started anew. Each has `seq`, `at`, `kind` and `body`."""
        failures = 0
        while True:
            try:
                query = {"after": after, "follow": int(follow)}
                stream = self._transport.events(f"{self._path}/events", query=query)
                with closing(stream) as events:
                    for _, event in events:
                        after, failures = event["seq"], 0
                        yield event
                return
            except DaemonError:
                failures += 1
                if not follow or failures > _TRIES:
                    raise

    def wait(self) -> dict[str, Any]:
        """To its end; `info` then has how it ended."""
        with closing(self.events(after=1 << 60)) as events:
            for _ in events:
                pass
        return self.refresh()

    def prompt(self, text: str) -> dict[str, Any]:
        """A turn of an acp session, to its end: `stop_reason`, and `events` with what was said and
        done meanwhile. Permission questions are answered by whoever calls `answer`."""
        after = (self.refresh())["last_event"]
        self.send_prompt(text)
        seen: List[dict[str, Any]] = []
        with closing(self.events(after=after)) as events:
            for event in events:
                if (result := turn_result(event)) is not None:
                    return {**result, "events": seen}
                seen.append(event)
        raise wire.broken("the session ended before its turn did")

    def send_prompt(self, text: str) -> dict[str, Any]:
        """Begins a turn, and returns at once. ConflictError while another is under way."""
        self.info = self._transport.call("POST", f"{self._path}/prompt", json={"text": text})
        return self.info

    def cancel(self) -> None:
        """Ends the turn that is under way, if one is."""
        self._transport.call("POST", f"{self._path}/cancel", json={})

    def answer(self, permission: str, option: str | None) -> None:
        """To a permission question (event `permission`), one of its options; None: cancelled."""
        wanted = {"id": permission, "option": option}
        self._transport.call("POST", f"{self._path}/permission", json=wanted)

    def terminal(
        self, *, size: tuple[int, int] | None = None, recent: int | None = None
    ) -> CommandStream:
        """The terminal of an interactive session, or the stdio of one that nobody drives; others
        may be attached at the same time. `size`: rows and columns; it is drawn anew."""
        job = find_job(self._transport, str(self.info["job"]))
        return job.output(size=size, recent=recent)

    def summary(self) -> dict[str, Any]:
        """Commands it ran, hosts it reached and was denied, files it changed, what it cost."""
        body: dict[str, Any] = self._transport.call(
            "GET", f"{self._path}/summary", seconds=LONG_CALL_SECONDS
        )
        return body

    def diff(self) -> dict[str, Any]:
        """As `sandbox.workspace.diff`."""
        body: dict[str, Any] = self._transport.call(
            "GET", f"{self._path}/diff", seconds=LONG_CALL_SECONDS
        )
        return body

    def apply(
        self,
        paths: Sequence[str] = (),
        *,
        allow_risky: bool = False,
        mark_conflicts: bool = False,
        commit: str | None = None,
    ) -> dict[str, Any]:
        """As `sandbox.workspace.apply`."""
        wanted: dict[str, Any] = {
            "paths": list(paths),
            "allow_risky": allow_risky,
            "mark_conflicts": mark_conflicts,
        }
        if commit is not None:
            wanted["commit"] = commit
        body: dict[str, Any] = self._transport.call(
            "POST", f"{self._path}/apply", json=wanted, seconds=LONG_CALL_SECONDS
        )
        return body

    def recording(self) -> bytes:
        """What its terminal showed, as an asciicast. NotFoundError if it had none."""
        return self._transport.fetch("GET", f"{self._path}/recording")

    def stop(self) -> dict[str, Any]:
        """Ends the agent; its sandbox stays."""
        self.info = self._transport.call(
            "POST", f"{self._path}/stop", seconds=LONG_CALL_SECONDS
        )
        return self.info

    def remove(self, *, keep_sandbox: bool = False) -> None:
        """With its log, its recording, and the sandbox that was made for it."""
        query = {"keep_sandbox": 1 if keep_sandbox else None}
        self._transport.call("DELETE", self._path, query=query, seconds=LONG_CALL_SECONDS)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info['agent']} {self.info['state']}>"


class AgentSessions:
    """`Host().agent_sessions`."""

    def __init__(self, transport: Transport | None = None) -> None:
        self._transport = transport or shared_transport()

    def start(
        self,
        agent: str,
        task: str | None = None,
        *,
        mode: str | None = None,
        sandbox: str | None = None,
        resume: str | None = None,
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        mcp: Sequence[Mapping[str, Any]] | None = None,
        progress: Progress | None = None,
        options: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> AgentSession:
        """Returns when the agent runs; its kit is made first if that is not there.

        `mode`: headless (a `task` to its end), interactive (a terminal) or acp (prompts); headless
        with a task, else acp. `sandbox`: one that was made with the agent in `agents`; without, a
        new one is made: `spec` has the fields of `SandboxSpec`, such as `workspace`. `options`:
        other fields of the HTTP API's AgentRequest. `progress` is called with sentences.
        """
        fields = {
            "agent": agent,
            "task": task,
            "mode": mode or ("headless" if task is not None else "acp"),
            "sandbox": sandbox,
            "resume": resume,
            "model": model,
            "env": None if env is None else dict(env),
            "mcp": None if mcp is None else [dict(server) for server in mcp],
            **(options or {}),
        }
        body = session_body(self._transport.daemon, fields, spec)
        with closing(
            self._transport.events("/v1/agent-sessions", method="POST", json=body)
        ) as events:
            for kind, told in events:
                if kind == "session":
                    return AgentSession(self._transport, told)
                if kind == "progress" and progress is not None:
                    progress(str(told.get("text")))
        raise wire.broken("a session that was not begun")

    def get(self, id: str) -> AgentSession:
        """NotFoundError if there is none."""
        info = self._transport.call("GET", f"/v1/agent-sessions/{segment(id)}")
        return AgentSession(self._transport, info)

    def list(
        self,
        *,
        agent: str | None = None,
        project: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> List[AgentSession]:
        """The newest first. `project`: a directory of the daemon's machine; `limit`: how many."""
        query: dict[str, Any] = {
            "agent": agent,
            "project": project,
            "state": state,
            "limit": _PAGE if limit is None else min(limit, _PAGE),
        }
        found: List[AgentSession] = []
        while True:
            body = self._transport.call("GET", "/v1/agent-sessions", query=query)
            found += [AgentSession(self._transport, info) for info in body["sessions"]]
            if body.get("next") is None or (limit is not None and len(found) >= limit):
                return found if limit is None else found[:limit]
            query["after"] = body["next"]
