"""`agentkernel acp AGENT`: an agent in a sandbox for the editor that started this process."""

from __future__ import annotations

import argparse
import os

from agentkernel.acp.commands import CommandOpener
from agentkernel.acp.serving import serve
from agentkernel.cli import project
from agentkernel.cli.fields import spec_fields
from agentkernel.client._async.transport import AsyncTransport


def main(options: argparse.Namespace) -> int:
    project.apply(options)
    transport = AsyncTransport(client="agentkernel-acp")
    where = options.workspace or os.getcwd()
    directory = os.path.abspath(os.path.expanduser(where))
    options.workspace = f"{directory}:cow"
    guest = os.path.realpath(directory) if options.at == "same" else options.at
    options.workspace_path = options.at
    opener = CommandOpener(
        transport,
        options.agent,
        options.words,
        project=directory,
        guest=guest,
        spec=spec_fields(options, transport.daemon),
        env=dict(options.env),
        sandbox=options.sandbox,
    )
    return serve(opener, apply=options.apply)
