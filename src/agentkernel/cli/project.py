"""Configuration files on the command line: found, judged, and put in where no flag says otherwise.

The one place where a project's file gets an effect: what comes out of here is explicit, and the
daemon never reads a project's file. Light as long as there is no file.
"""

from __future__ import annotations

import argparse
import os

from agentkernel.config.finding import NONE, project_file, user_file
from agentkernel.errors import PolicyDeniedError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

    from agentkernel.config.reading import ConfigFile
    from agentkernel.config.resolving import Resolved

# Which option holds what of a file.
_OPTIONS = {
    "sandbox.backend": "backend",
    "sandbox.image": "image",
    "sandbox.profile": "profile",
    "sandbox.user": "user",
    "sandbox.toolchains": "toolchains",
    "sandbox.nested_userns": "nested_userns",
    "sandbox.workspace": "workspace",
    "sandbox.workspace_secrets": "workspace_secrets",
    "sandbox.workspace_ignored": "workspace_ignored",
    "sandbox.workspace_path": "workspace_path",
    "sandbox.name": "name",
    "sandbox.ttl": "ttl",
    "sandbox.idle_timeout": "idle_timeout",
    "sandbox.on_ttl": "on_ttl",
    "sandbox.on_idle": "on_idle",
    "limits.memory": "memory",
    "limits.cpus": "cpus",
    "limits.pids": "pids",
    "limits.disk": "disk",
    "limits.nofile": "nofile",
    "limits.timeout": "timeout",
    "limits.output": "output",
    "network.presets": "network",
    "network.ports": "publish",
}
# Lists, where a flag says what is besides.
_LISTS = {"network.secrets": "secret", "sandbox.volumes": "volume"}


def apply(options: argparse.Namespace) -> None:
    """Fills in what the files say and no flag does. Raises PolicyDeniedError for a project's file
    that widens and is not trusted.
    """
    options.command_timeout = options.command_output = options.origin = None
    options.whole_network = None
    options.agent_settings, options.mcp_servers = {}, {}
    project, user = paths(options.config)
    if project is None and user is None:
        return
    project_read, user_read = read(project, user)
    resolved, trusted = judged(options, project_read, user_read)
    from agentkernel.config.resolving import expand_env, network_body

    variables = expand_env(resolved, os.environ)
    given = vars(options)
    for key, value in resolved.written().items():
        if _OPTIONS.get(key) in given:
            given[_OPTIONS[key]] = value
    if "env" in given:
        options.env = list(variables.items())
    if "label" in given:
        options.label = [(name, setting.value) for name, setting in resolved.labels.items()]
    for key, option in _LISTS.items():
        if option in given:
            given[option] = [*resolved.value(key), *(given[option] or ())] or None
    options.whole_network = network_body(resolved)
    if agent := given.get("agent"):
        entries = resolved.agents.get(agent, {})
        options.agent_settings = {key: setting.value for key, setting in entries.items()}
        options.mcp_servers = {name: setting.value for name, setting in resolved.mcp.items()}
    # A sandbox keeps these for its commands; `run` has one, which has its own options.
    written = resolved.written()
    options.command_timeout = None if "timeout" in given else written.get("limits.timeout")
    options.command_output = None if "output" in given else written.get("limits.output")
    options.origin = _origin(resolved, project_read, user_read, trusted)


def paths(chosen: str | None) -> tuple[str | None, str | None]:
    """The project's file and the user's, if they are there; a chosen one has to be."""
    user: str | None = user_file()
    if not os.path.lexists(user or ""):
        user = None
    if chosen == NONE:
        return None, user
    return (os.path.abspath(chosen) if chosen else project_file()), user


def read(project: str | None, user: str | None) -> tuple[ConfigFile | None, ConfigFile | None]:
    from agentkernel.config.reading import read_file

    return (
        None if project is None else read_file(project, "project"),
        None if user is None else read_file(user, "user"),
    )


def judged(
    options: argparse.Namespace, project: ConfigFile | None, user: ConfigFile | None
) -> tuple[Resolved, bool]:
    """What holds, and whether the project's file is trusted; or PolicyDeniedError."""
    from agentkernel.config.resolving import resolve

    given = vars(options)
    flags: dict[str, Any] = {
        # Lists as files have them.
        key: tuple(value) if isinstance(value, list) else value
        for key, dest in _OPTIONS.items()
        if (value := given.get(dest)) is not None
    }
    env, labels = dict(given.get("env") or ()), dict(given.get("label") or ())
    trusted = False
    if project is not None:
        from agentkernel.config.trust import is_trusted

        trusted = is_trusted(project)
        if not trusted:
            from agentkernel.config.widening import widenings

            if found := widenings(project, user, flags, flag_env=env, agent=given.get("agent")):
                raise PolicyDeniedError(
                    f"{project.path} is not trusted and asks for more than you get without it: "
                    + "; ".join(entry.words() for entry in found),
                    hint=f"read it, then `agentkernel trust {project.path}`; "
                    "or go without it: -c none",
                    file=project.path,
                    sha256=project.sha256,
                    widens=[entry.to_dict() for entry in found],
                )
    return resolve(flags, project, user, flag_env=env, flag_labels=labels), trusted


def _origin(
    resolved: Resolved, project: ConfigFile | None, user: ConfigFile | None, trusted: bool
) -> dict[str, Any]:
    """What is stored with the sandbox. Of variables only the names: values may be secrets."""
    files = [
        {"kind": file.kind, "path": file.path, "sha256": file.sha256, "trusted": is_ours or trusted}
        for file, is_ours in ((project, False), (user, True))
        if file is not None
    ]
    values = {
        name: {"value": _scalar(name, setting.value), "from": setting.origin}
        for name, setting in resolved.settings.items()
        if setting.value is not None
    }
    return {
        "files": files,
        "values": values,
        "env": {name: setting.origin for name, setting in resolved.env.items()},
    }


def _scalar(name: str, value: Any) -> str | int | float | bool:
    """Lists as `config show` has them: what is kept here is for reading."""
    if isinstance(value, tuple | dict):
        from agentkernel.config.widening import show

        return show(name, value)
    scalar: str | int | float | bool = value
    return scalar
