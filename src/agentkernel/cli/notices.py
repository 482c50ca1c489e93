"""What the command line says beside the answer, on stderr."""

from __future__ import annotations

from agentkernel import __version__
from agentkernel.cli.outcome import say
from agentkernel.client._sync.transport import Transport


def tell_version(transport: Transport) -> None:
    """Once a call was answered: says so if the daemon is of another version."""
    version = transport.daemon_version
    if version is not None and version != __version__:
        say(
            f"the daemon is version {version}, this is {__version__}",
            "`agentkernel daemon restart` loses nothing: sandboxes and jobs go on",
        )
