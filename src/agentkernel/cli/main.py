"""`agentkernel`, alias `ak`: parses the command line and hands over to one module a command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from agentkernel import __version__
from agentkernel.cli import verbs
from agentkernel.cli.outcome import BROKEN_PIPE, INTERRUPTED, OURS
from agentkernel.cli.parsers import Parser
from agentkernel.cli.values import duration
from agentkernel.errors import AgentKernelError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any, NoReturn


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser for all commands; or for the one that `words` begin with, which is faster."""
    parser = Parser(
        prog="agentkernel",
        description="Runs code that is not trusted in a sandbox on this machine.",
    )
    parser.add_argument("--version", action="version", version=f"agentkernel {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="agentkernel"
    )
    chosen = words[:1] if words[:1] and words[0] in _COMMANDS else _COMMANDS
    for name in chosen:
        _COMMANDS[name][0](commands)
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a command in a new sandbox and remove the sandbox",
        description="Runs CMD in a new sandbox, with this terminal's input and output, and removes "
        "the sandbox. The project that it is called in, a git repository or the directory of an "
        "agentkernel.toml, is at /workspace, copy-on-write: what is changed there is gone with the "
        "sandbox (--workspace, --keep). It reaches package registries and nothing else (--network, "
        "--allow), and of this machine it sees /usr and the toolchains on your PATH, read-only. "
        "Where these lack what CMD or the project asks for, an image has it (`detect`, --image). "
        "What the project's agentkernel.toml and your config.toml say holds where no option says "
        "otherwise.",
    )
    verbs.add_sandbox_options(run)
    run.add_argument(
        "--entrypoint", metavar="PROGRAM",
        help="in place of the image's, before CMD; '': none. Without CMD the image's own is run",
    )  # fmt: skip
    verbs.add_publish_option(run)
    verbs.add_process_options(run)
    run.add_argument(
        "--ttl", type=duration, metavar="TIME", help="how long the sandbox lives at most"
    )
    run.add_argument(
        "--keep", metavar="NAME",
        help="in the sandbox NAME, which stays; it is made if it is not there",
    )  # fmt: skip
    verbs.add_branch_option(run)
    run.add_argument("--json", action="store_true", help="print one JSON object with the result")
    run.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")


def _add_info(commands: Any) -> None:
    info = commands.add_parser(
        "info",
        help="show what a sandbox made with these options has, and what enforces it",
        description="Makes a sandbox with the given options, prints every line that holds in it "
        "and what enforces it, and removes it.",
    )
    verbs.add_sandbox_options(info)
    info.add_argument("--json", action="store_true", help="print JSON")


def _add_setup(commands: Any) -> None:
    setup = commands.add_parser(
        "setup",
        help="prepare this machine, or check what works on it",
        description="Without --check: makes the host image ready, so that the first run is fast.",
    )
    setup.add_argument(
        "--check",
        nargs="?",
        const="all",
        metavar="BACKEND",
        help="try each known backend, or one, with the whole conformance suite; exit status 1 if "
        "native (or that one) does not work",
    )
    setup.add_argument("--json", action="store_true", help="print JSON")


def _later(name: str, module: str = "machine_verbs") -> Callable[[Any], None]:
    """Arguments that the fast paths need not load."""

    def add(commands: Any) -> None:
        getattr(import_module(f"agentkernel.cli.{module}"), name)(commands)

    return add


def _short(agent: str) -> Callable[[Any], None]:
    def add(commands: Any) -> None:
        import_module("agentkernel.cli.agent_verbs").add_short(commands, agent)

    return add


# Agents that come with this package, and are verbs of their own: `agentkernel claude`.
AGENTS = ("claude", "codex", "gemini", "opencode", "aider")
# What adds its arguments; which module of cli, and what in it, carries it out.
_COMMANDS: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "run": (_add_run, "run", "main"),
    "exec": (verbs.add_exec, "exec", "main"),
    "attach": (verbs.add_attach, "exec", "attach"),
    "sandbox": (verbs.add_sandbox, "sandboxes", "main"),
    "job": (verbs.add_job, "jobs", "main"),
    "agent": (_later("add_agent", "agent_verbs"), "agent_verbs", "main"),
    **{name: (_short(name), "agent_run", "main") for name in AGENTS},
    "acp": (_later("add_acp", "agent_verbs"), "acp", "main"),
    "replay": (_later("add_replay", "agent_verbs"), "replay", "main"),
    "diff": (_later("add_diff"), "workspaces", "diff"),
    "apply": (_later("add_apply"), "workspaces", "apply"),
    "discard": (_later("add_discard"), "workspaces", "discard"),
    "image": (_later("add_image", "image_verbs"), "images", "main"),
    "template": (_later("add_template", "template_verbs"), "templates", "main"),
    "volume": (_later("add_volume"), "volumes", "main"),
    "network": (_later("add_network"), "networks", "main"),
    "info": (_add_info, "info", "main"),
    "detect": (_later("add_detect"), "detecting", "main"),
    "setup": (_add_setup, "setup", "main"),
    "serve": (_later("add_serve"), "serve", "main"),
    "port": (_later("add_port"), "ports", "main"),
    "daemon": (verbs.add_daemon, "daemons", "main"),
    "mcp": (_later("add_mcp"), "mcp", "main"),
    "secret": (_later("add_secret"), "secrets", "main"),
    "token": (_later("add_token"), "tokens", "main"),
    "audit": (_later("add_audit"), "audit", "main"),
    "config": (_later("add_config"), "config", "main"),
    "trust": (_later("add_trust"), "trust", "main"),
    "system": (_later("add_system"), "system", "main"),
    "doctor": (_later("add_doctor"), "doctor", "main"),
    "completion": (_later("add_completion"), "completion", "main"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Our own errors are one readable line, with a hint; never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    options = build_parser(words).parse_args(words)
    _, module, function = _COMMANDS[options.command]
    try:
        code: int = getattr(import_module(f"agentkernel.cli.{module}"), function)(options)
        return code
    except AgentKernelError as error:
        report(error, as_json=getattr(options, "json", False))
        return OURS
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. Nothing may be left in a buffer for the exit to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except OSError as error:
        return _unwritten(error)


def program() -> NoReturn:
    """The process of a command: ends with it. Taking the interpreter apart first would take a tenth
    of the time of a short `run`, and whatever has to be kept is on disk by then."""
    code = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream:  # None: closed before we began
                stream.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        code = _unwritten(error)
    os._exit(code)


def _unwritten(error: OSError) -> int:
    """A full disk behind stdout, most likely: every other one has become an error of ours."""
    where = f": {error.filename}" if error.filename else ""
    with contextlib.suppress(OSError):
        os.write(2, f"agentkernel: {error.strerror or error}{where}\n".encode(errors="replace"))
    return OURS


def report(error: AgentKernelError, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps({"error": error.to_dict()}))
        return
    from agentkernel.cli.values import printable

    print(f"agentkernel: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)
