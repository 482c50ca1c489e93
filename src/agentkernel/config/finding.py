"""Where configuration files are. Light: every `run` looks, and most find none."""

from __future__ import annotations

import os

PROJECT_NAME = "agentkernel.toml"
NONE = "none"
# Files of agents that name MCP servers, from a project's top: used only if the user trusts them.
FOREIGN = (
    ".mcp.json", ".gemini/settings.json", ".codex/config.toml", ".cursor/mcp.json",
    "opencode.json", "opencode.jsonc",
)  # fmt: skip


def is_foreign(path: str) -> bool:
    """Whether a file is one that we only trust or don't, and an agent reads."""
    return f"/{path}".endswith(tuple(f"/{name}" for name in FOREIGN))


def home_directory() -> str:
    return os.path.realpath(os.environ.get("HOME") or os.path.expanduser("~"))


def user_file() -> str:
    """The user's config file, there or not."""
    base = os.environ.get("XDG_CONFIG_HOME")
    if not base or not os.path.isabs(base):
        base = os.path.join(home_directory(), ".config")
    return os.path.join(base, "agentkernel", "config.toml")


def project_file(start: str | None = None) -> str | None:
    """The nearest `agentkernel.toml`: from `start` (else here) up to the git root or the home.

    Below neither, only `start` itself is looked at: what lies above, such as /tmp, is everybody's.
    """
    try:
        here = os.path.realpath(start or os.getcwd())
    except OSError:
        return None  # the current directory is gone
    top = project_top(here)
    while True:
        path = os.path.join(here, PROJECT_NAME)
        if os.path.lexists(path):
            return path
        if here == top:
            return None
        here = os.path.dirname(here)


def project_top(here: str) -> str:
    """The directory that a project's files end at: the git root or the home above; else `here`."""
    home = home_directory()
    directory = here
    while True:
        if directory == home or os.path.lexists(os.path.join(directory, ".git")):
            return directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return here
        directory = parent
