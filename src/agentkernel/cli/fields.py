"""From parsed options to the fields of a request. Light: nothing of the kernel is loaded."""

from __future__ import annotations

import argparse
import os

from agentkernel.cli.values import UNLIMITED
from agentkernel.client.toolchains import host_environment
from agentkernel.errors import InvalidInputError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

    from agentkernel.client.daemon import Daemon
    from agentkernel.client.remote import Remote


def spec_fields(
    options: argparse.Namespace, daemon: Daemon | Remote | None = None
) -> dict[str, Any]:
    """The fields of a SandboxSpec that the options set, for this daemon (None: this process)."""
    unlimited = options.disk == UNLIMITED
    fields = {
        "image": None if options.image is None else _image(options.image),
        "template": getattr(options, "template", None),
        "profile": options.profile,
        "user": options.user,
        "toolchains": None if options.toolchains is None else options.toolchains == "host",
        "nested_userns": options.nested_userns,
        "backend": options.backend,
        "memory_bytes": options.memory,
        "cpus": options.cpus,
        "pids": options.pids,
        "disk_bytes": None if unlimited else options.disk,
        "unlimited_disk": unlimited or None,
        "nofile": options.nofile,
        "best_effort": options.best_effort,
        "ports": list(options.publish) if getattr(options, "publish", None) else None,
        "network": _network(options),
        "secrets": options.secret,
        "workspace": _workspace(getattr(options, "workspace", None)),
        "workspace_secrets": getattr(options, "workspace_secrets", None),
        "volumes": getattr(options, "volume", None),
        "workspace_branch": getattr(options, "branch", None),
        "workspace_ignored": getattr(options, "workspace_ignored", None),
        "workspace_path": getattr(options, "workspace_path", None),
        "pull": getattr(options, "pull", None),
        "entrypoint": _entrypoint(getattr(options, "entrypoint", None)),
        # What only files can say; see `project.apply`.
        "command_timeout_seconds": getattr(options, "command_timeout", None),
        "command_output_bytes": getattr(options, "command_output", None),
        "config": getattr(options, "origin", None),
    }
    if options.image in (None, "host") and options.toolchains in (None, "host"):
        fields["host_env"] = host_environment(daemon)
    return {name: value for name, value in fields.items() if value is not None}


def _network(options: argparse.Namespace) -> dict[str, Any] | None:
    """None: as the profile says. What is allowed besides is besides that."""
    whole: dict[str, Any] | None = getattr(options, "whole_network", None)
    if whole is None and options.network is None and not options.allow and not options.deny:
        return None
    network = dict(whole or {})
    if options.network is not None:
        network["presets"] = options.network
    for name in ("allow", "deny"):
        network[name] = [*network.get(name, ()), *(getattr(options, name) or ())]
    return network


def _image(text: str) -> str:
    """A directory is meant from here, wherever the daemon is."""
    if text.startswith("~"):
        text = os.path.expanduser(text)
    return os.path.abspath(text) if text.startswith(".") else text


def _entrypoint(text: str | None) -> list[str] | None:
    """One program; nothing: none, whatever the image says."""
    return None if text is None else [text] if text else []


def _workspace(text: str | None) -> str | None:
    """DIR[:cow|ro|rw] or none; the directory is meant from here, wherever the daemon is."""
    if text is None or text == "none":
        return text
    path, colon, mode = text.rpartition(":")
    if not colon or mode not in ("cow", "ro", "rw"):
        path, mode = text, "cow"
    if path.startswith("~"):
        path = os.path.expanduser(path)
    return f"{os.path.abspath(path)}:{mode}"


def command_words(options: argparse.Namespace) -> list[str]:
    """The command after NAME. Options of ours that stand there would be taken for it."""
    words: list[str] = options.argv
    if words[:1] == ["--"]:
        return words[1:]
    if words and words[0].startswith("-"):
        raise InvalidInputError(
            f"{words[0]} stands after the sandbox's name",
            hint="options first, then NAME, then -- and the command",
        )
    return words
