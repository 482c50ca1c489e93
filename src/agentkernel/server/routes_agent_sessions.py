"""Sessions of agents over HTTP: started, followed, spoken to, looked at, ended."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from agentkernel.agents.mcp_servers import servers_for
from agentkernel.backends.base import Progress
from agentkernel.kernel.agents.model import (
    MAX_TASK,
    AgentEvent,
    AgentRequest,
    AgentSession,
    AgentSummary,
    SessionPage,
    SessionState,
)
from agentkernel.kernel.store.store import MAX_PAGE
from agentkernel.kernel.threads import in_thread
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.server import sse
from agentkernel.server.answers import Ended, Problem
from agentkernel.server.app import service_of
from agentkernel.server.callers import (
    caller_of,
    check_network,
    owner_of,
    permitted,
    secrets_owner,
)
from agentkernel.server.content import Content
from agentkernel.server.operations import EVENTS, route
from agentkernel.server.output_events import Words
from agentkernel.server.problems import json_response
from agentkernel.server.routes_events import last_seen
from agentkernel.server.routes_workspaces import Apply
from agentkernel.server.telling import BEGUN, Telling
from agentkernel.workspaces.applying import WorkspaceApplied
from agentkernel.workspaces.diffing import WorkspaceDiff

CAST: Final = "application/x-asciicast"
_PIECE: Final = 1 << 16


class SessionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`project`: a directory of the daemon's machine."""

    agent: Annotated[str, Meta(max_length=32)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    state: list[SessionState] = []
    after: Annotated[int, Meta(ge=0, le=1 << 62)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100


class SessionEventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    follow: bool = True


class SessionRemoval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep_sandbox: bool = False


class AgentPrompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=MAX_TASK)]


class PermissionAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`id`: the question's, from its event. `option`: one of its options; null: cancelled."""

    id: Annotated[str, Meta(max_length=256)]
    option: Annotated[str, Meta(max_length=256)] | None = None


async def _start(request: Request, body: AgentRequest) -> Response:
    service, caller = service_of(request), caller_of(request)
    caller.check("exec")
    if body.spec is not None:
        body = msgspec.structs.replace(body, spec=permitted(request, body.spec))
    elif body.resume is not None:
        # Whoever began it may have been allowed more, of the same owner as it is.
        sessions = service.kernel.agents.sessions
        permitted(request, await sessions.spec(body.resume, owner=caller.owner))
    if body.mcp:
        # A server is reached by rules of its own.
        added = servers_for(body.mcp, sandbox_tools=False, secrets=_secrets(body))
        check_network(request, NetworkRequest(rules=list(added.rules)))

    async def work(progress: Progress | None = None) -> AgentSession:
        return await service.kernel.agents.sessions.start(
            body,
            owner=caller.owner,
            secrets_of=secrets_owner(request),
            progress=progress,
        )

    if sse.is_wanted(request):
        return await sse.stream(request, _starting(Telling(work, lambda sentence: sentence)))
    return json_response(await service.while_wanted(request.receive, work()), 201)


def _secrets(body: AgentRequest) -> list[str]:
    return [] if body.spec is None else body.spec.secrets


async def _starting(telling: Telling[str, AgentSession]) -> AsyncGenerator[bytes, None]:
    """What is being made for it, such as the agent's kit, and then the session."""
    async with aclosing(telling.words()) as sentences:
        await telling.begun()
        yield BEGUN
        async for sentence in sentences:
            yield sse.event("progress", Words(text=sentence))
    yield sse.event("session", telling.task.result())


async def _list(request: Request, query: SessionQuery) -> SessionPage:
    return await service_of(request).kernel.agents.sessions.list(
        owner=owner_of(request),
        agent=query.agent,
        project=query.project,
        states=query.state,
        after=query.after,
        limit=query.limit,
    )


async def _show(request: Request) -> AgentSession:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    return await sessions.get(id, owner=owner_of(request))


async def _remove(request: Request, query: SessionRemoval) -> None:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    await sessions.remove(id, owner=owner_of(request), keep_sandbox=query.keep_sandbox)


async def _stop(request: Request) -> AgentSession:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    return await sessions.stop(id, owner=owner_of(request))


async def _events(request: Request, query: SessionEventQuery) -> Response:
    after = last_seen(request, query.after) or 0
    return await sse.stream(request, _log(request, after, follow=query.follow))


async def _log(request: Request, after: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    await sessions.get(id, owner=owner_of(request))
    yield BEGUN
    found = sessions.events(id, owner=owner_of(request), after=after, follow=follow)
    async with aclosing(found) as events:
        async for event in events:
            yield sse.event(event.kind, event, str(event.seq))


async def _prompt(request: Request, body: AgentPrompt) -> AgentSession:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    return await sessions.prompt(id, body.text, owner=owner_of(request))


async def _cancel(request: Request) -> None:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    await sessions.cancel(id, owner=owner_of(request))


async def _answer(request: Request, body: PermissionAnswer) -> None:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    await sessions.answer(id, body.id, body.option, owner=owner_of(request))


async def _summary(request: Request) -> AgentSummary:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    return await sessions.summary(id, owner=owner_of(request))


async def _diff(request: Request) -> WorkspaceDiff:
    sessions, id = service_of(request).kernel.agents.sessions, request.path_params["session"]
    return await sessions.diff(id, owner=owner_of(request))


async def _apply(request: Request, body: Apply) -> WorkspaceApplied:
    # It writes files of this machine, which are the user's.
    caller_of(request).check("host-paths")
    return await service_of(request).kernel.agents.sessions.apply(
        request.path_params["session"],
        body.paths,
        allow_risky=body.allow_risky,
        mark_conflicts=body.mark_conflicts,
        commit=body.commit,
        owner=owner_of(request),
    )


async def _recording(request: Request) -> Response:
    service = service_of(request)
    path = await service.kernel.agents.sessions.recording(
        request.path_params["session"], owner=owner_of(request)
    )
    return Content(service, b"", _pieces(path), media_type=CAST)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


async def _pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Whole lines: of a session that runs the last one may be half written."""
    with await in_thread(_opened, path) as file:
        left = os.fstat(file.fileno()).st_size
        held = b""
        while left > 0:
            piece = await in_thread(file.read, min(left, _PIECE))
            if not piece:
                return
            left -= len(piece)
            lines, end, held = (held + piece).rpartition(b"\n")
            yield lines + end


ROUTES: list[BaseRoute] = [
    route(
        "POST", "/v1/agent-sessions", _start, needs="manage", id="startAgentSession",
        tag="agents", answers={201: AgentSession}, status=201,
        events={"progress": Words, "session": AgentSession, "error": Problem, "ping": Ended},
        summary="Start an agent in a sandbox; needs the scope exec, too",
    ),
    route(
        "GET", "/v1/agent-sessions", _list, needs="read", id="listAgentSessions", tag="agents",
        summary="The sessions of agents, the newest first",
    ),
    route(
        "GET", "/v1/agent-sessions/{session}", _show, needs="read", id="getAgentSession",
        tag="agents", summary="A session of an agent",
    ),
    route(
        "DELETE", "/v1/agent-sessions/{session}", _remove, needs="manage",
        id="removeAgentSession", tag="agents",
        summary="Forget a session, with the sandbox that was made for it",
    ),
    route(
        "POST", "/v1/agent-sessions/{session}/stop", _stop, needs="exec",
        id="stopAgentSession", tag="agents", summary="End the agent; its sandbox stays",
    ),
    route(
        "GET", "/v1/agent-sessions/{session}/events", _events, needs="read",
        id="streamAgentSessionEvents", tag="agents",
        summary="What an agent says and does, from any event and live to its end",
        answers={200: EVENTS}, events={"*": AgentEvent, "error": Problem, "ping": Ended},
        headers={"Last-Event-ID": "the last event that was seen; goes before `after`"},
    ),
    route(
        "POST", "/v1/agent-sessions/{session}/prompt", _prompt, needs="exec",
        id="promptAgentSession", tag="agents",
        summary="Begin a turn of an acp session; its events tell how it goes",
    ),
    route(
        "POST", "/v1/agent-sessions/{session}/cancel", _cancel, needs="exec",
        id="cancelAgentSession", tag="agents", summary="End the turn that is under way",
    ),
    route(
        "POST", "/v1/agent-sessions/{session}/permission", _answer, needs="exec",
        id="answerAgentSession", tag="agents", summary="Answer what an agent asks leave for",
    ),
    route(
        "GET", "/v1/agent-sessions/{session}/summary", _summary, needs="read",
        id="summarizeAgentSession", tag="agents",
        summary="What a session ran, reached, was denied, changed and cost",
    ),
    route(
        "GET", "/v1/agent-sessions/{session}/diff", _diff, needs="read",
        id="diffAgentSession", tag="agents", summary="What a session has changed in its project",
    ),
    route(
        "POST", "/v1/agent-sessions/{session}/apply", _apply, needs="manage",
        id="applyAgentSession", tag="agents",
        summary="Make a session's changes in the project itself; needs the scope host-paths",
    ),
    route(
        "GET", "/v1/agent-sessions/{session}/recording", _recording, needs="read",
        id="getAgentSessionRecording", tag="agents", answers={200: CAST},
        summary="What a session's terminal showed, as an asciicast",
    ),
]  # fmt: skip
