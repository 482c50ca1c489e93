"""`agentkernel acp AGENT`: an agent in a sandbox for the editor that started this process."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from agentkernel.acp.opening import Opener, Unopenable
from agentkernel.acp.serving import serve
from agentkernel.acp.sessions import SessionOpener
from agentkernel.agents.reading import Definitions
from agentkernel.cli import project
from agentkernel.cli.agent_asking import add_network, servers_of
from agentkernel.cli.fields import spec_fields
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.config.finding import user_file
from agentkernel.errors import AgentKernelError, InvalidInputError

_SAME = "same"


def main(options: argparse.Namespace) -> int:
    opener: Opener
    try:
        opener = _opener(options)
    except AgentKernelError as error:
        opener = Unopenable(options.agent, error)
    return serve(opener, apply=options.apply)


def _opener(options: argparse.Namespace) -> SessionOpener:
    project.apply(options)
    transport = AsyncTransport(client="agentkernel-acp")
    directory = _directory(options.workspace)
    options.workspace = f"{directory}:cow"
    options.workspace_path = options.workspace_path or _SAME
    settings: dict[str, Any] = options.agent_settings
    spec = spec_fields(options, transport.daemon)
    add_network(spec, settings)
    asked = {
        "command": options.words,
        "model": options.model or settings.get("model"),
        "env": dict(options.env),
        "mcp": servers_of(options, settings),
        "setup": [["sh", "-c", words] for words in settings.get("setup", ())],
        "login": None if options.login else False,
    }
    return SessionOpener(
        transport,
        options.agent,
        project=directory,
        spec=spec,
        options={key: value for key, value in asked.items() if value not in (None, [], {})},
        sandbox=options.sandbox,
        servers_file="" if options.words else _servers_file(options.agent),
    )


def _servers_file(agent: str) -> str:
    """Below the home: of an agent that is told of it by words of its other command lines."""
    try:
        mcp = Definitions(Path(user_file()).parent / "agents").get(agent).mcp
    except AgentKernelError:
        return ""  # the daemon tells what is wrong with it
    return mcp.file.removeprefix("~/") if mcp.format == "claude" and mcp.words else ""


def _directory(text: str | None) -> str:
    """The project, as the editor calls it: editors start their agents in it."""
    path, colon, mode = (text or os.getcwd()).rpartition(":")
    if colon and mode in ("ro", "rw"):
        raise InvalidInputError(
            "an editor's agent has the project copy-on-write", hint="leave out :ro and :rw"
        )
    chosen = path if colon and mode == "cow" else text or os.getcwd()
    return os.path.abspath(os.path.expanduser(chosen))
