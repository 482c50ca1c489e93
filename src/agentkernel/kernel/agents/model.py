"""What callers ask of agents and what they are told: the words that all parts of it share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from agentkernel.agents.commands import Mode
from agentkernel.agents.model import AgentUsage, McpServer
from agentkernel.kernel.spec import SandboxSpec

SessionState = Literal["starting", "running", "ended", "failed", "lost"]
EventKind = Literal[
    "session", "prompt", "agent", "output", "input", "resize", "permission", "usage", "ended"
]
MAX_TASK: int = 1 << 20


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to start.

    `spec`: the sandbox, without what the agent itself needs, which is added. `sandbox`: one that is
    there already, instead. `task`: what to do; none in interactive mode, and optional with acp.
    `resume`: a session of the same agent to go on with (its id), in its sandbox, or if that is gone
    in a new one with the state it left. `attended`: leave the agent's own permission questions on.
    `login`: bind the user's login with the agent; without one the caller cares for it, such as for
    a model without a key. `drive`: in mode acp the daemon speaks with the agent; else whoever is
    attached to the job does. `words`: added to the agent's command line. `setup`: commands run
    before it, in the network's phase "setup". `trust_project_mcp`: the project's own list of MCP
    servers counts.

    With acp: `command` is the command line of an agent that has no definition; `agent` is then only
    what it is called.
    """

    agent: Annotated[str, Meta(min_length=1, max_length=32)]
    mode: Mode = "headless"
    command: Annotated[list[str], Meta(max_length=256)] = []
    task: Annotated[str, Meta(max_length=MAX_TASK)] | None = None
    spec: SandboxSpec | None = None
    sandbox: Annotated[str, Meta(max_length=64)] | None = None
    name: Annotated[str, Meta(max_length=63)] | None = None
    resume: Annotated[str, Meta(max_length=64)] | None = None
    model: Annotated[str, Meta(max_length=200)] | None = None
    words: Annotated[list[str], Meta(max_length=64)] = []
    attended: bool = False
    login: bool = True
    drive: bool = True
    env: dict[str, str] = {}
    mcp: Annotated[list[McpServer], Meta(max_length=32)] = []
    sandbox_tools: bool = True
    trust_project_mcp: bool = False
    setup: Annotated[list[list[str]], Meta(max_length=16)] = []
    workdir: Annotated[str, Meta(max_length=4096)] | None = None
    pty: Annotated[list[int], Meta(min_length=2, max_length=2)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as shown. `job` runs the agent: attach to it for its terminal or its stdio.
    `last_event`: the number of the newest in its log.
    `conversation`: the agent's own id of it. `busy`: a prompt of an acp session is being worked on.
    """

    id: str
    agent: str
    version: str
    mode: Mode
    state: SessionState
    sandbox: str
    sandbox_name: str | None
    job: str | None
    task: str | None
    model: str | None
    project: str | None
    conversation: str | None
    created_at: float
    ended_at: float | None
    exit_code: int | None
    error: str | None
    busy: bool = False
    last_event: int = 0
    usage: AgentUsage = AgentUsage()


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """`next`: the `after` of the following page; None: there is none."""

    sessions: list[AgentSession]
    next: int | None


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a session's log. `seq` counts from 1; `at`: seconds since 1970. `body` of
    "agent": the agent's own event (headless), or the `params` of a session/update (acp); of
    "output" and "input": {"text": …}; of "permission": {"id", "request"} and later {"id",
    "answer"}; of "ended": {"exit_code", "reason"}."""

    seq: int
    at: float
    kind: EventKind
    body: dict[str, Any]


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    times: int


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent asked its user for, by the sandbox's own tools: a host to reach, or a port to
    be published. `change`: the command that would give it."""

    what: Literal["host", "port"]
    host: str
    port: int
    reason: str
    change: str


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a session. `commands`: those that the agent says it ran. `changed`,
    `held_back`: paths of the project, and why what is held back is; `complete`: False if a list was
    cut. `asked`: what the agent asked its user for, by the sandbox's tools."""

    session: AgentSession
    commands: list[str]
    hosts: list[HostSeen]
    denied: list[HostSeen]
    changed: list[str]
    held_back: dict[str, str]
    usage: AgentUsage
    seconds: float
    complete: bool = True
    asked: list[Wish] = []
