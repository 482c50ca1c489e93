"""Arguments of the verbs that talk to the daemon, and the groups that several verbs share."""

from __future__ import annotations

import argparse

from agentkernel.cli.values import (
    duration,
    duration_or_none,
    environment_entry,
    label_entry,
    names,
    port_entry,
    size_or_unlimited,
    size_value,
)

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

STATES = ("creating", "running", "stopped", "removing", "error")


def _group(commands: Any, name: str, about: str) -> Any:
    parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    return parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, prog=f"agentkernel {name}"
    )


def _verb(verbs: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_exec(commands: Any) -> None:
    run = commands.add_parser(
        "exec",
        help="run a command in a sandbox that is there",
        description="Runs CMD in the sandbox NAME (or id), with this terminal's input and output.",
    )
    add_process_options(run)
    run.add_argument("--user", help="root, user, or a number (default: the sandbox's)")
    run.add_argument("--json", action="store_true", help="print one JSON object with the result")
    run.add_argument("name", metavar="NAME", help="the sandbox")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")


def add_attach(commands: Any) -> None:
    parser = commands.add_parser(
        "attach",
        help="show a job's output live, and end as it ends",
        description="Shows a job's output from its beginning and live to its end; the exit status "
        "is the job's. Ctrl-C ends the showing; the job goes on.",
    )
    _add_attach_options(parser)


def _add_attach_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--stdin", action="store_true", help="give it this terminal's input")
    parser.add_argument("job", metavar="JOB", help="the job's id")


def add_sandbox(commands: Any) -> None:
    verbs = _group(commands, "sandbox", "make and manage sandboxes that stay")
    create = _verb(verbs, "create", "make a sandbox and start it; its name or id is printed")
    create.add_argument("name", metavar="NAME", nargs="?", help="how to call it (default: its id)")
    add_sandbox_options(create)
    add_publish_option(create)
    add_branch_option(create)
    default = "(default: stop; remove if it is ephemeral)"
    life = add_life_options(create, on_ttl=default, on_idle=default)
    life.add_argument("--ephemeral", action="store_true", help="files in memory, gone when it ends")
    create.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="a variable for every command in it",
    )  # fmt: skip
    _add_label(create, "to find it by")

    listing = _verb(verbs, "list", "list sandboxes")
    _add_label(listing, "only with this label")
    listing.add_argument("--state", choices=STATES, help="only in this state")
    whose = listing.add_mutually_exclusive_group()
    whose.add_argument("--all", action="store_true", help="everybody's, with their owners and ids")
    whose.add_argument("--owner", metavar="OWNER", help="those of one owner, such as token:ci")
    _one(_verb(verbs, "info", "show a sandbox, what holds in it and what enforces it"))
    _many(_verb(verbs, "start", "run stopped sandboxes again"))
    stop = _verb(verbs, "stop", "end all that runs in sandboxes and keep their files")
    stop.add_argument("--grace", type=float, metavar="SECONDS", help="before SIGKILL (default: 5)")
    _many(stop)
    remove = _verb(verbs, "remove", "end sandboxes and remove all of them")
    remove.add_argument("-f", "--force", action="store_true", help="one that is not there is fine")
    _many(remove)
    _add_update(_verb(verbs, "update", "change a sandbox's name, labels and clocks"))
    extend = _verb(verbs, "extend", "begin a sandbox's time to live anew")
    _one(extend)
    extend.add_argument("ttl", type=duration, metavar="TIME", help="from now, such as 30m or 2h")
    copy = _verb(verbs, "cp", "copy a file or a directory into a sandbox or out of it")
    copy.description = (
        "Copies a file or a directory into a sandbox or out of it. A directory that is there takes "
        "the source in, under its name; one that is not is made, and is the copy. DIR/. stands for "
        "what is in DIR. Modes, times and links are kept. Inside, everything belongs to --user; "
        "here to you, less your umask and without setuid bits, and links that lead out of the "
        "directory are left out. An archive has the sandbox's ids and all links. Each file appears "
        "whole or not at all; after a failure those that were whole stay."
    )
    copy.add_argument("--user", help="with whose rights inside (default: the sandbox's user)")
    what = "NAME:/path, a path here, or - for a tar archive"
    copy.add_argument("source", metavar="SOURCE", help=f"{what} (stdin); DIR/. is what is in DIR")
    copy.add_argument("target", metavar="TARGET", help=f"{what} (stdout)")
    logs = _verb(verbs, "logs", "show what happened to a sandbox")
    logs.add_argument("-f", "--follow", action="store_true", help="wait for more")
    _one(logs)
    gc = _verb(verbs, "gc", "remove sandboxes by label and age")
    _add_label(gc, "only with this label")
    gc.add_argument("--older-than", type=duration, metavar="TIME", help="only older ones")
    gc.add_argument("--dry-run", action="store_true", help="say which, remove none")


def _add_update(update: argparse.ArgumentParser) -> None:
    """What is not given is not in the options: null takes something away."""
    absent = argparse.SUPPRESS
    update.add_argument("--name", dest="new_name", metavar="NEW", default=absent, help="rename it")
    _add_label(update, "add or replace a label")
    update.add_argument(
        "--remove-label", action="append", default=[], metavar="KEY", help="take a label away"
    )
    clocks = (("--ttl", "from now: how long it lives"), ("--idle-timeout", "how long it may idle"))
    for flag, about in clocks:
        update.add_argument(
            flag, type=duration_or_none, metavar="TIME", default=absent,
            help=f"{about}; none: for ever",
        )  # fmt: skip
    for flag in ("--on-ttl", "--on-idle"):
        update.add_argument(
            flag, choices=("stop", "remove"), default=absent, help="what then becomes of it"
        )
    _one(update)


def add_job(commands: Any) -> None:
    verbs = _group(commands, "job", "commands that run in the background of a sandbox")
    start = _verb(verbs, "start", "start a command that goes on by itself; its id is printed")
    add_process_options(start, tty=False)
    start.add_argument("--user", help="root, user, or a number (default: the sandbox's)")
    start.add_argument("-i", "--stdin", action="store_true", help="let `attach -i` give it input")
    start.add_argument("-t", "--tty", action="store_true", help="a terminal, which `attach` shows")
    _one(start)
    start.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")
    _verb(verbs, "list", "list the jobs of a sandbox, or of all").add_argument(
        "name", metavar="NAME", nargs="?", help="the sandbox, by name or id (default: all)"
    )
    _verb(verbs, "info", "show a job").add_argument("job", metavar="JOB")
    logs = verbs.add_parser(
        "logs",
        help="show what a job wrote",
        description="Shows what a job wrote: its stdout on stdout, its stderr on stderr.",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="to its end")
    logs.add_argument("job", metavar="JOB")
    attach = verbs.add_parser(
        "attach", help="as `agentkernel attach`", description="As `agentkernel attach`."
    )
    _add_attach_options(attach)
    kill = _verb(verbs, "kill", "end a job with all it started")
    kill.add_argument("-s", "--signal", help="only send this signal, such as TERM")
    kill.add_argument("job", metavar="JOB")


def add_daemon(commands: Any) -> None:
    verbs = _group(commands, "daemon", "the process that keeps sandboxes; starts by itself")
    _verb(verbs, "status", "show whether it runs; exit status 1 if not")
    _verb(verbs, "stop", "end it; sandboxes and jobs go on")
    _verb(verbs, "restart", "end it and start it; sandboxes and jobs go on")
    logs = _verb(verbs, "logs", "show the end of its log")
    logs.add_argument("-n", "--lines", type=int, default=100, metavar="N", help="default: 100")


def _one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the sandbox, by name or id")


def _many(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="sandboxes, by name or id")


def _add_label(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument(
        "--label", action="append", default=[], type=label_entry, metavar="KEY=VALUE", help=about
    )


def add_life_options(
    parser: argparse.ArgumentParser, *, on_ttl: str, on_idle: str, ttl: str = "", idle: str = ""
) -> Any:
    """The clocks of a sandbox that stays; the texts say what holds without the option."""
    life = parser.add_argument_group("life")
    life.add_argument(
        "--ttl", type=duration, metavar="TIME", help=f"how long it lives at most {ttl}".rstrip()
    )
    life.add_argument(
        "--idle-timeout", type=duration, metavar="TIME",
        help=f"how long it may have no call, command or job {idle}".rstrip(),
    )  # fmt: skip
    ends = ("stop", "remove")
    life.add_argument("--on-ttl", choices=ends, help=f"what then becomes of it {on_ttl}")
    life.add_argument("--on-idle", choices=ends, help=f"what then becomes of it {on_idle}")
    return life


def add_sandbox_options(parser: argparse.ArgumentParser, *, image: bool = True) -> None:
    group = parser.add_argument_group("sandbox")
    group.add_argument(
        "--backend", metavar="NAME",
        help="the engine: native (default), runc, crun, gvisor; `setup --check` tells what works",
    )  # fmt: skip
    if image:
        group.add_argument(
            "--image", metavar="IMAGE",
            help="`host` (this machine's programs, the default), a directory with a root file "
            "system, or NAME[:TAG] of an image, pulled if it is not here; `run` without it takes "
            "what `detect` shows",
        )  # fmt: skip
        group.add_argument(
            "--template", metavar="NAME", help="a template in place of an image; see `template`"
        )
        group.add_argument(
            "--pull", choices=("missing", "always", "never"),
            help="when to ask the registry for the image (default: missing)",
        )  # fmt: skip
        group.add_argument(
            "--workspace", metavar="DIR[:cow|ro|rw]|none",
            help="a directory of this machine at /workspace, where commands begin; cow (default): "
            "changes stay inside, ro: none can be made, rw: they are made outside, too; `run` has "
            "the project that it is called in unless something is said",
        )  # fmt: skip
        group.add_argument(
            "--workspace-secrets", action="store_true", default=None,
            help="show files in it that look like secrets (.env, keys, .npmrc, …)",
        )  # fmt: skip
        group.add_argument(
            "--workspace-ignored", choices=("show", "hide"),
            help="whether files in it that git ignores are there (default: show)",
        )  # fmt: skip
        group.add_argument(
            "--workspace-path", metavar="same|/PATH",
            help="where it is inside (default: /workspace); same: where it is on this machine",
        )  # fmt: skip
    group.add_argument(
        "--volume", action="append", metavar="NAME:/PATH[:ro]",
        help="a volume at a path inside; made if it is not there yet, and kept; see `volume`",
    )  # fmt: skip
    group.add_argument(
        "--profile", choices=("permissive", "moderate", "restrictive"),
        help="defaults for capabilities, system calls and limits (default: moderate)",
    )  # fmt: skip
    group.add_argument(
        "--user", help="NAME, UID, NAME:GROUP or UID:GID (default: the image's own, or root)"
    )
    group.add_argument(
        "--toolchains", choices=("host", "none"),
        help="none: hide toolchains that are outside /usr (pyenv, nvm, cargo, …)",
    )  # fmt: skip
    group.add_argument("--memory", type=size_value, metavar="SIZE", help="such as 512M or 2G")
    group.add_argument("--cpus", type=float, metavar="N", help="such as 0.5 or 2")
    group.add_argument("--pids", type=int, metavar="N", help="most processes and threads")
    group.add_argument(
        "--disk", type=size_or_unlimited, metavar="SIZE",
        help="most bytes of files, in memory, or in an image file if they are kept; "
        "`unlimited`: on disk, without a bound",
    )  # fmt: skip
    group.add_argument("--nofile", type=int, metavar="N", help="most open files of a process")
    add_network_options(group)
    group.add_argument(
        "--best-effort", action="store_true", default=None,
        help="make it also if a limit asked for can't be enforced here; `info` says which",
    )  # fmt: skip
    group.add_argument(
        "--nested-userns", action="store_true", default=None,
        help="let the sandbox make user namespaces (weaker)",
    )  # fmt: skip
    add_config_option(parser)


def add_branch_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--branch", metavar="BRANCH",
        help="in the sandbox of this git branch, which stays and is found again by it; the "
        "workspace is the branch, where it is checked out or else in a checkout of its own",
    )  # fmt: skip


def add_publish_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--publish", action="append", type=port_entry, metavar="[[ADDRESS:]HOST_PORT:]PORT",
        help="open a port of the sandbox on 127.0.0.1, or ADDRESS, of the daemon's machine; "
        "HOST_PORT 0: one that is free; preview:PORT: as a preview alone",
    )  # fmt: skip


def add_network_options(group: Any) -> None:
    group.add_argument(
        "--network", type=names, metavar="PRESET,…",
        help="what it may reach: none, registries, public, … (default: what the profile says)",
    )  # fmt: skip
    group.add_argument(
        "--allow", action="append", metavar="HOST[:PORT]", help="this as well; see `network allow`"
    )
    group.add_argument(
        "--deny", action="append", metavar="HOST[:PORT]", help="this not, whatever else is allowed"
    )
    group.add_argument(
        "--secret", action="append", metavar="NAME@HOST",
        help="let it use a secret there without knowing it; see `secret`",
    )  # fmt: skip


def add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", metavar="FILE",
        help="the project's file (default: agentkernel.toml here or above); `none`: no such file",
    )  # fmt: skip


def add_process_options(parser: argparse.ArgumentParser, *, tty: bool = True) -> None:
    group = parser.add_argument_group("command")
    group.add_argument(
        "-e", "--env", action="append", default=[], type=environment_entry, metavar="NAME[=VALUE]",
        help="set a variable; without a value it is taken from here",
    )  # fmt: skip
    group.add_argument("-w", "--workdir", metavar="DIR", help="working directory inside")
    group.add_argument("--timeout", type=duration, metavar="TIME", help="such as 30, 90s, 5m")
    group.add_argument(
        "--output", type=size_value, metavar="SIZE",
        help="most that is delivered of each of stdout and stderr; the rest is counted (default: "
        "all, with --json what the profile says)" if tty else
        "most that is kept of each of stdout and stderr, the newest (default: 64M)",
    )  # fmt: skip
    if not tty:
        return
    choice = group.add_mutually_exclusive_group()
    choice.add_argument("-t", "--tty", action="store_true", default=None, dest="tty",
                        help="use a pseudo-terminal (default: when this is one)")  # fmt: skip
    choice.add_argument("-T", "--no-tty", action="store_false", dest="tty", help="never use one")
