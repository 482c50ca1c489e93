"""The project that `run` is called in: it is at /workspace, copy-on-write, unless one says else.

A project is a git repository, or a directory with an agentkernel.toml. Light: every `run` looks.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys

from agentkernel.cli.outcome import say
from agentkernel.cli.values import printable
from agentkernel.config.finding import NONE, home_directory, project_file

_TARGET = "/workspace"
_SAME = "same"
_PATHS = ("/", ".", "~")


def choose(options: argparse.Namespace, state_dir: str, *, is_local: bool) -> None:
    """Fills in the workspace where neither an option nor a file says one, and says so."""
    if options.workspace is not None or not is_local:
        return
    top, why = _find(options, state_dir)
    target = options.workspace_path or _TARGET
    if top is None:
        if sys.stderr.isatty() and not options.quiet:
            say(f"nothing is at {printable(target)}: {why}")
        return
    if target == _SAME:
        target = top
    options.workspace = f"{top}:cow"
    below = os.path.relpath(os.path.realpath(os.getcwd()), top)
    if options.workdir is None and below != ".":
        options.workdir = f"{target}/{below}"
    if not options.quiet:
        what = "at its own path" if target == top else f"{printable(top)}"
        say(f"{printable(target)} is {what}, copy-on-write (--workspace none: nothing is there)")


def _find(options: argparse.Namespace, state_dir: str) -> tuple[str | None, str]:
    """The directory; or none, and why."""
    why = "this is neither in a git repository nor beside an agentkernel.toml"
    try:
        here = os.path.realpath(os.getcwd())
        top = repository_top(here)
        if top is None:
            file = None if options.config == NONE else project_file(here)
            top = None if file is None else os.path.dirname(file)
        if top is None:
            return None, why
        info = os.stat(top)
    except OSError:
        return None, "the current directory can't be read"
    state, home = os.path.realpath(state_dir), home_directory()
    if top == "/" or (home + "/").startswith(top + "/"):
        return None, "your home is not a project"
    if (state + "/").startswith(top + "/") or top.startswith(state + "/"):
        return None, "the state directory is in or around the project"
    if os.geteuid() != 0:
        if info.st_uid != os.geteuid():
            return None, f"{printable(top)} belongs to somebody else"
        if options.user not in (None, "root", "0") or (options.image or "").startswith(_PATHS):
            return None, "only root of a sandbox could edit files there; name it with --workspace"
    elif info.st_mode & stat.S_IWOTH:
        return None, f"everybody can write to {printable(top)}"
    return top, ""


def repository_top(here: str) -> str | None:
    """The top of the git repository that a directory is in, judged by names alone."""
    while True:
        git = f"{here}/.git"
        if os.path.isfile(git) or os.path.isfile(f"{git}/HEAD"):
            return here
        if here == "/":
            return None
        here = os.path.dirname(here)
