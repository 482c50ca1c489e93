"""`agentkernel`, alias `ak`: parses the command line and hands over to one module a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from agentkernel import __version__
from agentkernel.cli.values import duration, environment_entry, size_or_unlimited, size_value
from agentkernel.errors import AgentKernelError

OURS = 125
INTERRUPTED = 130

_EXITS = """\
exit status of run:
  the command's own   it exited
  128+n               a signal n ended it (137: also when it ran out of memory)
  124                 --timeout ended it
  125                 agentkernel failed; one line on stderr says why
  126, 127            it could not be started; 127: not found
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentkernel",
        description="Run untrusted code in a sandbox on this machine.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agentkernel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a command in a new sandbox and remove the sandbox",
        description="Runs CMD in a new sandbox, with this terminal's input and output, and removes "
        "the sandbox. It has no network, and of this machine it sees /usr and the toolchains on "
        "your PATH, read-only.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_sandbox_options(run)
    _add_process_options(run)
    run.add_argument("--json", action="store_true", help="print one JSON object with the result")
    run.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")

    info = commands.add_parser(
        "info",
        help="show what a sandbox made with these options has, and what enforces it",
        description="Makes a sandbox with the given options, prints every line that holds in it "
        "and what enforces it, and removes it.",
    )
    _add_sandbox_options(info)
    info.add_argument("--json", action="store_true", help="print JSON")

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
        help="try each known backend (or one); exit status 1 if native (or that one) does not work",
    )
    setup.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sandbox")
    group.add_argument(
        "--image", default="host", metavar="IMAGE",
        help="`host` (this machine's programs, the default) or a directory with a root file system",
    )  # fmt: skip
    group.add_argument(
        "--profile", default="moderate", choices=("permissive", "moderate", "restrictive"),
        help="defaults for capabilities, system calls and limits (default: moderate)",
    )  # fmt: skip
    group.add_argument("--user", default="root", help="root (default), user, or a number")
    group.add_argument(
        "--toolchains", default="host", choices=("host", "none"),
        help="none: hide toolchains that are outside /usr (pyenv, nvm, cargo, …)",
    )  # fmt: skip
    group.add_argument("--memory", type=size_value, metavar="SIZE", help="such as 512M or 2G")
    group.add_argument("--cpus", type=float, metavar="N", help="such as 0.5 or 2")
    group.add_argument("--pids", type=int, metavar="N", help="most processes and threads")
    group.add_argument(
        "--disk", type=size_or_unlimited, metavar="SIZE",
        help="most bytes of files, which are in memory then; `unlimited`: files are on disk",
    )  # fmt: skip
    group.add_argument("--nofile", type=int, metavar="N", help="most open files of a process")
    group.add_argument(
        "--nested-userns", action="store_true", help="let the sandbox make user namespaces (weaker)"
    )


def _add_process_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("command")
    group.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="set a variable; without a value it is taken from here",
    )  # fmt: skip
    group.add_argument("-w", "--workdir", metavar="DIR", help="working directory inside")
    group.add_argument("--timeout", type=duration, metavar="TIME", help="such as 30, 90s, 5m")
    tty = group.add_mutually_exclusive_group()
    tty.add_argument("-t", "--tty", action="store_true", default=None, dest="tty",
                     help="use a pseudo-terminal (default: when this is one)")  # fmt: skip
    tty.add_argument("-T", "--no-tty", action="store_false", dest="tty", help="never use one")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Our own errors are one readable line, with a hint; never a traceback."""
    options = build_parser().parse_args(arguments)
    try:
        match options.command:
            case "run":
                from agentkernel.cli import run

                return run.main(options)
            case "info":
                from agentkernel.cli import info

                return info.main(options)
            case _:
                from agentkernel.cli import setup

                return setup.main(options)
    except AgentKernelError as error:
        report(error, as_json=getattr(options, "json", False))
        return OURS
    except KeyboardInterrupt:
        return INTERRUPTED


def report(error: AgentKernelError, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps({"error": error.to_dict()}))
        return
    from agentkernel.cli.values import printable

    print(f"agentkernel: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)
