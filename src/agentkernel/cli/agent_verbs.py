"""Arguments of the verbs about agents, and which module carries each out.

`agentkernel claude …` is short for `agentkernel agent run claude …`; so with every agent that comes
with this package. An agent of one's own has the long form alone.
"""

from __future__ import annotations

import argparse
from functools import cache
from importlib import import_module
from typing import Any

from agentkernel.cli.parsers import Parser
from agentkernel.cli.values import count, duration, environment_entry
from agentkernel.cli.verbs import (
    _group,
    _verb,
    add_branch_option,
    add_publish_option,
    add_sandbox_options,
)

# Which module of cli carries a verb out: by its function `main`.
_MODULES = {
    "run": "agent_run",
    "list": "agent_kits",
    "show": "agent_kits",
    "install": "agent_kits",
    "update": "agent_kits",
    "remove": "agent_kits",
    "login": "agent_logins",
    "logout": "agent_logins",
    "status": "agent_logins",
    "sessions": "agent_sessions",
    "attach": "agent_sessions",
    "stop": "agent_sessions",
    "diff": "agent_sessions",
    "apply": "agent_sessions",
    "summary": "agent_sessions",
    "forget": "agent_sessions",
}
_RUN = (
    "Runs an agent in a sandbox of its own, which has the project that it is called in, "
    "copy-on-write. With a TASK the agent does it and ends; without one you talk to it on this "
    "terminal. It reaches its model and nothing else (--network, --allow); logins and keys stay "
    "outside (`agent login`, `secret set`). At the end you see what it has changed, ran and "
    "reached, and choose what becomes of it. Words after -- go to the agent as they are."
)


def add_agent(commands: Any) -> None:
    verbs = _group(commands, "agent", "AI agents in sandboxes: claude, codex, gemini and others")
    run = verbs.add_parser("run", help="run an agent in a sandbox", description=_RUN)
    _add_agent_name(run)
    _add_run_options(run)
    _add_kit_verbs(verbs)
    _add_login_verbs(verbs)
    _add_session_verbs(verbs)


def add_short(commands: Any, agent: str) -> None:
    """`agentkernel claude`: as `agent run claude`."""
    parser = commands.add_parser(
        agent, help=f"as `agent run {agent}`", description=_RUN, parents=[_run_options()]
    )
    parser.takes_words = True
    parser.set_defaults(agent=agent)


@cache
def _run_options() -> Parser:
    """Made once for all agents: whoever asks for --help waits for it."""
    parser = Parser(add_help=False)
    _add_run_options(parser)
    return parser


def main(options: argparse.Namespace) -> int:
    module = import_module(f"agentkernel.cli.{_MODULES[options.verb]}")
    code: int = module.main(options)
    return code


# -- run -----------------------------------------------------------------------------------------


def _add_run_options(parser: Parser) -> None:
    parser.takes_words = True
    parser.add_argument(
        "task", metavar="TASK", nargs="?",
        help="what it is to do; -: from stdin. Without: on this terminal, with you",
    )  # fmt: skip
    group = parser.add_argument_group("agent")
    group.add_argument("--model", metavar="MODEL", help="as the agent calls it (default: its own)")
    group.add_argument(
        "--attended", action="store_true",
        help="let it ask before it acts, as it does without a sandbox",
    )  # fmt: skip
    group.add_argument(
        "--no-login", action="store_true",
        help="without your login or key, such as for a model on this machine",
    )  # fmt: skip
    again = group.add_mutually_exclusive_group()
    again.add_argument(
        "--continue", dest="resume_last", action="store_true",
        help="go on with its last session in this project",
    )  # fmt: skip
    again.add_argument(
        "--session", metavar="ID", help="go on with this session; see `agent sessions`"
    )
    group.add_argument(
        "--mcp", action="append", metavar="NAME[,NAME]|all|none",
        help="MCP servers of yours that it may use, sections [mcp.NAME] of your config.toml",
    )  # fmt: skip
    group.add_argument(
        "--no-sandbox-tools", action="store_true", help="without the sandbox's own MCP tools"
    )
    group.add_argument(
        "--setup", action="append", metavar="COMMAND",
        help="run in the sandbox first, with package registries in reach; may be repeated",
    )  # fmt: skip
    group.add_argument("--timeout", type=duration, metavar="TIME", help="such as 90s, 30m, 2h")
    group.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="set a variable; without a value it is taken from here",
    )  # fmt: skip
    end = parser.add_argument_group("project and end")
    add_branch_option(parser)
    end.add_argument(
        "--worktree", metavar="NAME", nargs="?", const="",
        help="in a git worktree of its own, made if it is not there (default: named after the "
        "session)",
    )  # fmt: skip
    end.add_argument("--name", metavar="NAME", help="how to call the sandbox")
    end.add_argument(
        "-y", "--yes", action="store_true",
        help="apply what it changed without asking, but for what is held back",
    )  # fmt: skip
    what = end.add_mutually_exclusive_group()
    what.add_argument("--keep", action="store_true", help="keep the sandbox without asking")
    what.add_argument("--rm", action="store_true", help="remove the sandbox without asking")
    end.add_argument("--summary", metavar="FILE", help="write what became of it to a file, as JSON")
    parser.add_argument(
        "--json", action="store_true", help="print the agent's own events, one JSON object a line"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    add_sandbox_options(parser)
    add_publish_option(parser)


# -- kits ----------------------------------------------------------------------------------------


def _add_kit_verbs(verbs: Any) -> None:
    _verb(verbs, "list", "list agents, their versions and whether they are installed")
    _add_agent_name(_verb(verbs, "show", "show what is known of an agent, and its installation"))
    install = _verb(verbs, "install", "install agents now rather than with their first session")
    install.description = (
        "Installs agents in the version that this agentkernel or your own file of them pins, once "
        "for all of their sandboxes. It is done in a sandbox that reaches package registries alone."
    )
    _add_progress_options(install)
    _add_agent_names(install)
    update = _verb(verbs, "update", "install the pinned versions of agents that are installed")
    update.description = (
        "Installs the version that is pinned now, of these agents or of all that are installed, "
        "and removes older ones that no sandbox has. Sandboxes that are there keep theirs."
    )
    update.add_argument(
        "--version", dest="version_wanted", metavar="VERSION",
        help="this one from now on, until the next update without it; of one agent",
    )  # fmt: skip
    _add_progress_options(update)
    _add_agent_names(update, nargs="*")
    remove = _verb(verbs, "remove", "remove agents' installations; sessions install them again")
    _add_agent_names(remove)


def _add_progress_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="print only what is installed")


def _add_agent_name(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument(
        "agent", metavar="AGENT", nargs=nargs, help="such as claude; see `agent list`"
    )


def _add_agent_names(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    parser.add_argument("agents", metavar="AGENT", nargs=nargs, help="such as claude")


# -- logins --------------------------------------------------------------------------------------


def _add_login_verbs(verbs: Any) -> None:
    login = _verb(verbs, "login", "log in with an agent; its login stays outside")
    login.description = (
        "Logs in with an agent, once for all of its sandboxes, which get placeholders. Without an "
        "option the agent's own login is run in a sandbox that is made for that alone, and taken "
        "out of it; the daemon refreshes it from then on."
    )
    _add_agent_name(login)
    how = login.add_mutually_exclusive_group()
    how.add_argument(
        "--api-key", action="store_true", help="an API key, from stdin, or asked for without echo"
    )
    how.add_argument(
        "--from-env", action="store_true", help="an API key, from the variable of its name here"
    )
    how.add_argument(
        "--import", dest="import_file", nargs="?", const="", metavar="FILE",
        help="the login that the agent itself keeps on this machine, or in FILE; -: from stdin",
    )  # fmt: skip
    login.add_argument(
        "--key", metavar="NAME", help="which API key, of an agent that takes several"
    )
    _add_agent_name(_verb(verbs, "logout", "forget the login with an agent"))
    status = _verb(verbs, "status", "show the logins with agents, and what enters sandboxes")
    status.add_argument("--refresh", action="store_true", help="ask for a new token first")
    _add_agent_name(status, nargs="?")


# -- sessions ------------------------------------------------------------------------------------


def _add_session_verbs(verbs: Any) -> None:
    sessions = _verb(verbs, "sessions", "list sessions of agents, the newest first")
    sessions.add_argument("--agent", metavar="AGENT", help="of this agent only")
    sessions.add_argument(
        "--project", metavar="DIR", help="of this directory only; .: of the one you are in"
    )
    sessions.add_argument("--running", action="store_true", help="only those that go on")
    sessions.add_argument("-n", "--lines", type=count, metavar="N", help="no more (default: 20)")
    attach = verbs.add_parser(
        "attach",
        help="come back to a session that goes on",
        description="Shows a session's terminal, or what it prints, and gives it this terminal's "
        "input. The session goes on when this ends.",
    )
    _add_session(attach)
    _add_session(_verb(verbs, "stop", "end a session; its sandbox and its changes stay"))
    _add_session(_verb(verbs, "summary", "show what a session changed, ran, reached and cost"))
    forget = _verb(verbs, "forget", "remove sessions: what was said, recordings, sandboxes")
    forget.description = (
        "Removes sessions with what was said in them, their recordings, what the agent would need "
        "to go on with them, and the sandboxes that were made for them."
    )
    forget.add_argument("--keep-sandbox", action="store_true", help="but not the sandboxes")
    forget.add_argument(
        "sessions", metavar="SESSION", nargs="+", help="by id, or by the sandbox's name"
    )
    diff = _verb(verbs, "diff", "show what a session has changed in its project")
    diff.add_argument("--stat", action="store_true", help="a line a file instead of the patch")
    _add_session(diff)
    apply = _verb(verbs, "apply", "make a session's changes in the project, too")
    apply.add_argument(
        "--conflicts", choices=("leave", "markers"), default="leave",
        help="where both have changed the same lines: left as it is (default), or written with "
        "both, between marks",
    )  # fmt: skip
    apply.add_argument("--commit", action="store_true", help="make a commit of them instead")
    apply.add_argument("-m", "--message", metavar="TEXT", help="the commit's message")
    apply.add_argument(
        "--allow-risky", action="store_true",
        help="also what makes other programs run something, which is held back else",
    )  # fmt: skip
    _add_session(apply)
    apply.add_argument(
        "paths", metavar="PATH", nargs="*", help="only this and what is below it (default: all)"
    )


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", metavar="SESSION",
        help="its id, or the name of its sandbox: the newest there; see `agent sessions`",
    )  # fmt: skip


# -- beside `agent` ------------------------------------------------------------------------------


def add_acp(commands: Any) -> None:
    parser = commands.add_parser(
        "acp",
        help="serve an agent in a sandbox to an editor, on stdin and stdout",
        description="Speaks the Agent Client Protocol on stdin and stdout with the editor that "
        "started it, as AGENT, which runs in a sandbox that has the editor's project, "
        "copy-on-write. Its files and terminals are the sandbox's, never the editor's. When the "
        "editor goes the agent stays for a while, and the next editor finds it again. Words after "
        "-- are the command line of an agent that has no definition; AGENT is then its name.",
    )
    _add_agent_name(parser)
    parser.takes_words = True
    parser.add_argument(
        "--apply", choices=("ask", "never", "turn"), default="ask",
        help="what becomes of its changes at the end of a turn: the editor asks you (default), "
        "they stay in the sandbox, or they are applied; what is held back is so always",
    )  # fmt: skip
    parser.add_argument(
        "--sandbox", metavar="NAME",
        help="in this sandbox, which has the project (default: one of the editor's own)",
    )  # fmt: skip
    parser.add_argument(
        "--mcp", action="append", metavar="NAME",
        help="an MCP server of yours that it may use; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--no-login", dest="login", action="store_false",
        help="without your login with it, for a model that needs none",
    )  # fmt: skip
    parser.add_argument("--model", metavar="MODEL", help="as the agent calls it (default: its own)")
    parser.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="set a variable; without a value it is taken from here",
    )  # fmt: skip
    add_sandbox_options(parser)


def add_replay(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="show a session of an agent again",
        description="Shows what an agent's session had on its terminal, as fast as it went, or "
        "what it said and did.",
    )
    parser.add_argument("--speed", type=float, metavar="N", help="N times as fast (default: 1)")
    parser.add_argument(
        "--idle", type=duration, metavar="TIME", help="no pause longer than this (default: 2s)"
    )
    parser.add_argument("--cat", action="store_true", help="all at once, without pauses")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="write the recording to FILE instead, as it is (asciicast v2); -: stdout",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print its events, one object a line")
    _add_session(parser)
