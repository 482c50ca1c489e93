"""What the command line says beside the answer, on stderr."""

from __future__ import annotations

import os

from agentkernel import __version__
from agentkernel.cli.outcome import say
from agentkernel.cli.values import printable
from agentkernel.client._sync.transport import Transport


def tell_version(transport: Transport) -> None:
    """Once a call was answered: says so if the daemon is of another version."""
    version = transport.daemon_version
    if version is not None and version != __version__:
        say(
            f"the daemon is version {version}, this is {__version__}",
            "`agentkernel daemon restart` loses nothing: sandboxes and jobs go on",
        )


def say_once(text: str, state_dir: str) -> None:
    """A profile's default that can't be enforced is said once for each state directory."""
    from binascii import b2a_hex

    directory = os.path.join(state_dir, "said")
    mark = os.path.join(directory, b2a_hex(text.encode()).decode()[:200])
    if os.path.exists(mark):
        return
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # then it is said again
    say(printable(text), "`agentkernel info` shows all that holds; this is said once")
