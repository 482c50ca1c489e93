"""`agentkernel agent sessions|attach|stop|diff|apply|summary|forget`: sessions that were begun."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any, Final

from agentkernel.cli.agent_end import decide, summary_lines
from agentkernel.cli.agent_finding import find_session
from agentkernel.cli.agent_foreground import LeftBehind, follow_session
from agentkernel.cli.foreground import fill_standard_descriptors
from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import finish, say
from agentkernel.cli.replay import event_lines
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show
from agentkernel.cli.workspaces import show_applied, show_diff
from agentkernel.client._sync.agent_sessions import AgentSession, AgentSessions
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import AgentKernelError

_LISTED: Final = 20
_MOST_TASK: Final = 60
_GOING: Final = ("starting", "running")


def main(options: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace, Transport], int]] = {
        "sessions": _list,
        "attach": _attach,
        "stop": _stop,
        "diff": _diff,
        "apply": _apply,
        "summary": _summary,
        "forget": _forget,
    }
    with Connected() as transport:
        return verbs[options.verb](options, transport)


def _list(options: argparse.Namespace, transport: Transport) -> int:
    place = None if options.project is None else os.path.realpath(options.project)
    found = AgentSessions(transport).list(
        agent=options.agent,
        project=place,
        state="running" if options.running else None,
        limit=options.lines or _LISTED,
    )
    sessions = [session.info for session in found]
    if options.json:
        print(json.dumps({"sessions": sessions}))
        return 0
    rows = [
        (
            session["id"], session["agent"], session["mode"], _state(session),
            ago(session["created_at"]), session["sandbox_name"] or "-", session["project"] or "-",
            _task(session["task"]),
        )
        for session in sessions
    ]  # fmt: skip
    show(("SESSION", "AGENT", "MODE", "STATUS", "AGE", "SANDBOX", "PROJECT", "TASK"), rows)
    return 0


def _state(session: dict[str, Any]) -> str:
    code = session["exit_code"]
    return session["state"] if code is None else f"{session['state']} ({code})"


def _task(text: str | None) -> str:
    words = " ".join((text or "-").split())
    return words if len(words) <= _MOST_TASK else f"{words[: _MOST_TASK - 1]}…"


def _attach(options: argparse.Namespace, transport: Transport) -> int:
    fill_standard_descriptors()
    session = find_session(transport, options.session)
    if session.info["mode"] == "acp":
        return _follow_log(session)
    try:
        ended = follow_session(transport, session, again=session.info["state"] in _GOING)
    except LeftBehind as left:
        left.tell(session)
        return left.code
    code = finish(ended, session.info["agent"], None)
    if session.info["mode"] == "interactive" and session.info["state"] in _GOING:
        # Whoever began it has left: what becomes of it is to be said here.
        asked = argparse.Namespace(yes=False, keep=False, rm=False, summary=None, quiet=False)
        decided = decide(transport, session, asked)
        return code or decided
    say(f"what it changed: agentkernel agent diff {session.id}")
    return code


def _follow_log(session: AgentSession) -> int:
    """Of a session that somebody speaks ACP with: what it says and does."""
    for line in event_lines(session.events()):
        print(line, flush=True)
    code: int | None = session.refresh()["exit_code"]
    return code or 0


def _stop(options: argparse.Namespace, transport: Transport) -> int:
    session = find_session(transport, options.session).stop()
    print(json.dumps(session) if options.json else f"{session['id']}: {_state(session)}")
    return 0


def _diff(options: argparse.Namespace, transport: Transport) -> int:
    show_diff(find_session(transport, options.session).diff(), options)
    return 0


def _apply(options: argparse.Namespace, transport: Transport) -> int:
    """Status 1: not all that was asked for is applied."""
    done = (
        AgentSessions(transport)
        .get(options.session)
        .apply(
            options.paths,
            allow_risky=options.allow_risky,
            mark_conflicts=options.conflicts == "markers",
            commit=options.message or "" if options.commit or options.message else None,
        )
    )
    if options.json:
        print(json.dumps(done))
    else:
        show_applied(done)
    return 0 if done["complete"] else 1


def _summary(options: argparse.Namespace, transport: Transport) -> int:
    session = find_session(transport, options.session)
    summary = session.summary()
    if options.json:
        print(json.dumps(summary))
        return 0
    try:
        diff = session.diff()
    except AgentKernelError:
        diff = {"changes": []}  # its sandbox is gone, or was no copy of the project
    for line in summary_lines(summary, diff)[1:]:
        print(line)
    return 0


def _forget(options: argparse.Namespace, transport: Transport) -> int:
    def forget(text: str) -> dict[str, Any]:
        session = find_session(transport, text)
        session.remove(keep_sandbox=options.keep_sandbox)
        return {"id": session.id}

    return for_each(options.sessions, forget, as_json=options.json, what="forgotten")
