"""`agentkernel agent run AGENT [TASK]`, in short `agentkernel AGENT [TASK]`.

What the files and the options say becomes one request; what of the project counts is judged here,
on the user's side, and the daemon is told values.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.reading import Definitions
from agentkernel.cli import here, project
from agentkernel.cli.agent_asking import add_network, servers_of
from agentkernel.cli.agent_end import decide, remove_own_sandbox
from agentkernel.cli.agent_finding import find_session
from agentkernel.cli.agent_foreground import LeftBehind, headless, interactive
from agentkernel.cli.fields import spec_fields
from agentkernel.cli.foreground import fill_standard_descriptors
from agentkernel.cli.kept import choose_branch
from agentkernel.cli.notices import tell_version
from agentkernel.cli.outcome import Ended, finish, say, say_progress
from agentkernel.cli.terminal import Terminal
from agentkernel.cli.values import printable
from agentkernel.client._sync.agent_sessions import AgentSession, AgentSessions
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.config.finding import NONE, project_file, user_file
from agentkernel.config.reading import read_foreign
from agentkernel.config.trust import is_trusted
from agentkernel.errors import AgentKernelError, ConflictError, InvalidInputError, NotFoundError
from agentkernel.workspaces.git import find_git
from agentkernel.workspaces.worktrees import open_worktree

MOST_TASK: Final = 1 << 20
_SAME: Final = "same"
# What a sandbox is made with: one that is there has it already, or has it not.
_MADE_WITH: Final = (
    "allow", "deny", "network", "secret", "volume", "publish", "image", "template", "profile",
    "backend", "user", "memory", "cpus", "pids", "disk", "nofile", "workspace", "workspace_path",
)  # fmt: skip


def main(options: argparse.Namespace) -> int:
    fill_standard_descriptors()
    task = _task(options)
    given = [name for name in _MADE_WITH if getattr(options, name)]
    project.apply(options)
    transport = Transport()
    try:
        return _run(options, transport, task, given)
    finally:
        tell_version(transport)
        transport.close()


def _run(
    options: argparse.Namespace, transport: Transport, task: str | None, given: list[str]
) -> int:
    name = options.name
    if options.worktree is not None:
        name = name or f"{options.agent}-{secrets.token_hex(3)}"
        _choose_worktree(options, options.worktree or name)
    resumed = _resumed(options, transport)
    if resumed is not None and given:
        _check_gone(transport, resumed, given)
    session = _start(options, transport, task, resumed, name, given)
    try:
        if not options.quiet:
            _tell_begin(session.info)
        ended = _attended(options, transport, session, task)
    except LeftBehind as left:
        if left.goes_on or not options.rm:
            left.tell(session)
        else:
            say("the agent is stopped")
            remove_own_sandbox(transport, session.info["sandbox"])
        return left.code
    code = finish(ended, options.agent, options.timeout)
    decided = decide(transport, session, options)
    return code or decided


def _check_gone(transport: Transport, session: dict[str, Any], given: list[str]) -> None:
    """A sandbox that is there is gone on with as it is."""
    name = _sandbox_there(transport, session["sandbox"])
    if name is not None:
        flags = ", ".join(f"--{word.replace('_', '-')}" for word in given)
        raise InvalidInputError(
            f"the session goes on in its sandbox, which is made already: {flags} can't change it",
            hint=f"`agentkernel network allow {session['sandbox_name'] or name} HOST` does, or "
            "begin anew",
        )


def _attended(
    options: argparse.Namespace, transport: Transport, session: AgentSession, task: str | None
) -> Ended:
    if task is None:
        return interactive(transport, session)
    return headless(transport, session, raw=options.json, quiet=options.quiet)


def _tell_begin(session: dict[str, Any]) -> None:
    name = session["sandbox_name"] or session["sandbox"]
    leave = "; Ctrl-\\ twice leaves it running" if session["mode"] == "interactive" else ""
    say(printable(f"{session['agent']} {session['version']} in the sandbox {name}{leave}"))


# -- what is asked for ---------------------------------------------------------------------------


def _task(options: argparse.Namespace) -> str | None:
    """What to do; None: interactive."""
    if options.task is None:
        if options.json:
            raise InvalidInputError("--json needs a task", hint="as a word, or - for stdin")
        if not (os.isatty(0) and os.isatty(1)):
            raise InvalidInputError(
                "no task is given, and this is no terminal to talk to the agent on",
                hint=f'agentkernel agent run {options.agent} "what to do"; -: the task is on stdin',
            )
        return None
    task: str = options.task
    if task == "-":
        data = b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_TASK + 1)
        if len(data) > MOST_TASK:
            raise InvalidInputError(f"the task is longer than {MOST_TASK >> 20} MiB")
        try:
            task = data.decode()
        except UnicodeDecodeError:
            raise InvalidInputError("the task on stdin is not UTF-8") from None
    if not task.strip():
        raise InvalidInputError("the task is empty")
    return task


def _resumed(options: argparse.Namespace, transport: Transport) -> dict[str, Any] | None:
    """The session to go on with."""
    if options.session is not None:
        session = find_session(transport, options.session).info
    elif options.resume_last:
        place = _project_here(options)
        found = AgentSessions(transport).list(agent=options.agent, project=place, limit=1)
        if not found:
            raise NotFoundError(
                f"{options.agent} has no session in {place}",
                hint="`agentkernel agent sessions` lists all; without --continue a new one begins",
            )
        session = found[0].info
    else:
        return None
    if session["agent"] != options.agent:
        raise InvalidInputError(
            f"the session {session['id']} is one of {session['agent']}",
            hint=f"agentkernel agent run {session['agent']} --session {session['id']}",
        )
    if session["state"] in ("starting", "running"):
        raise ConflictError(
            f"the session {session['id']} goes on",
            hint=f"agentkernel agent attach {session['id']}, or `agent stop` it first",
        )
    return session


def _project_here(options: argparse.Namespace) -> str:
    """The directory that a session started here would work on."""
    if options.workspace not in (None, "none"):
        path, colon, mode = options.workspace.rpartition(":")
        chosen: str = path if colon and mode in ("cow", "ro", "rw") else options.workspace
        return os.path.realpath(chosen)
    now = os.path.realpath(os.getcwd())
    file = None if options.config == NONE else project_file(now)
    return here.repository_top(now) or (now if file is None else os.path.dirname(file))


def _start(
    options: argparse.Namespace,
    transport: Transport,
    task: str | None,
    resumed: dict[str, Any] | None,
    name: str | None,
    given: list[str],
) -> AgentSession:
    """`given`: with these a session that is gone on with has a sandbox like that, else one as it
    had."""
    definition = _definition(options.agent)
    options.workdir = None
    options.workspace_path = options.workspace_path or _SAME
    found: str | None = None
    branch = choose_branch(options)
    if branch is not None:
        found = _branch_sandbox(options, transport, options.name or branch)
    elif resumed is not None and options.workspace is None and resumed["project"]:
        options.workspace = f"{resumed['project']}:cow"
    elif resumed is None or given:
        is_local = transport.daemon.shares_host
        here.choose(options, transport.daemon.state_dir, is_local=is_local)
    settings: dict[str, Any] = options.agent_settings
    spec: dict[str, Any] = {}
    if found is None and (resumed is None or given):
        spec = spec_fields(options, transport.daemon)
        add_network(spec, settings)
    terminal = Terminal() if task is None else None
    more = {
        "name": None if found or resumed is not None else name,
        "words": options.words,
        "login": not options.no_login,
        "attended": options.attended or bool(settings.get("attended")),
        "sandbox_tools": not options.no_sandbox_tools and settings.get("sandbox_tools", True),
        "trust_project_mcp": _trusts_servers(options, definition),
        "setup": [["sh", "-c", words] for words in options.setup or settings.get("setup", ())],
        "workdir": options.workdir,
        "pty": None if terminal is None else list(terminal.size()),
        "timeout_seconds": options.timeout,
    }
    return AgentSessions(transport).start(
        options.agent,
        task,
        mode="interactive" if task is None else "headless",
        sandbox=found,
        resume=None if resumed is None else resumed["id"],
        model=options.model or settings.get("model"),
        env=_environment(options, terminal),
        mcp=servers_of(options, settings),
        progress=None if options.quiet else say_progress,
        options=more,
        **spec,
    )


def _branch_sandbox(options: argparse.Namespace, transport: Transport, name: str) -> str:
    """The sandbox of a branch, which stays and is found again, as with `run --branch`."""
    found = _sandbox_there(transport, name)
    if found is not None:
        return found
    spec = {
        **spec_fields(options, transport.daemon),
        "agents": [options.agent],
        "agent_logins": not options.no_login,
    }
    add_network(spec, options.agent_settings)
    told = None if options.quiet else say_progress
    made = Sandbox.create(name=name, kept=True, progress=told, transport=transport, **spec)
    return made.id


def _definition(agent: str) -> AgentDefinition | None:
    """As it is here; one that only the daemon's machine has is not known."""
    with contextlib.suppress(AgentKernelError):
        return Definitions(Path(user_file()).parent / "agents").get(agent)
    return None


def _choose_worktree(options: argparse.Namespace, name: str) -> None:
    if options.branch is not None or options.workspace is not None:
        raise InvalidInputError(
            "--worktree goes with neither --branch nor --workspace",
            hint="a worktree is a directory of its own, on a branch of its name",
        )
    place = find_git(os.path.realpath(os.getcwd()))
    if place is None:
        raise InvalidInputError(
            "this directory is in no git repository, so it has no worktrees", hint="go to one"
        )
    made = open_worktree(place, name)
    options.workspace = f"{made.path}:cow"
    if not options.quiet:
        what = "new worktree" if made.is_new else "worktree"
        say(printable(f"{what} {made.path}, branch {made.branch}"))


def _sandbox_there(transport: Transport, name: str) -> str | None:
    try:
        return Sandbox.connect(name, transport=transport).id
    except NotFoundError:
        return None


def _environment(options: argparse.Namespace, terminal: Terminal | None) -> dict[str, str]:
    env: dict[str, str] = {}
    if terminal is not None:
        env["TERM"] = terminal.kind
        if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
            env["COLORTERM"] = "truecolor"
    return {**env, **dict(options.env)}


def _trusts_servers(options: argparse.Namespace, definition: AgentDefinition | None) -> bool:
    """Whether the project's own list of MCP servers counts: only as the user has seen it."""
    if definition is None or not definition.mcp.project or options.workspace in (None, "none"):
        return False
    path = os.path.join(_project_here(options), definition.mcp.project)
    if not os.path.lexists(path):
        return False
    try:
        trusted = is_trusted(read_foreign(path)[0])
    except AgentKernelError:
        trusted = False
    if not trusted and not options.quiet:
        say(
            f"{printable(path)} is not trusted: its MCP servers are left out",
            f"read it, then `agentkernel trust {shlex.quote(path)}`",
        )
    return trusted
