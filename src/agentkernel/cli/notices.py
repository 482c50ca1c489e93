"""What the command line says beside the answer, on stderr."""

from __future__ import annotations

import os

from agentkernel import __version__
from agentkernel.cli.outcome import say
from agentkernel.cli.values import printable
from agentkernel.client._sync.transport import Transport

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def tell_version(transport: Transport) -> None:
    """Once a call was answered: says so if the daemon is of another version."""
    version = transport.daemon_version
    if version is not None and version != __version__:
        say(
            f"the daemon is version {version}, this is {__version__}",
            "`agentkernel daemon restart` loses nothing: sandboxes and jobs go on",
        )


class Connected:
    """`with Connected() as transport`: at its end a daemon of another version is told of."""

    def __enter__(self) -> Transport:
        self._transport = Transport()
        return self._transport

    def __exit__(self, *_: object) -> None:
        tell_version(self._transport)
        self._transport.close()


def published_words(body: dict[str, Any]) -> str:
    """Where a port of a sandbox is."""
    address = str(body.get("address"))
    where = f"[{address}]" if ":" in address else address
    return printable(f"port {body.get('port')} is on {where}:{body.get('host_port')}")


def tell_once(state_dir: str, sentences: Iterable[str], verb: str) -> None:
    """A limit that does not hold is said once for each state directory; `verb` always shows it."""
    from binascii import b2a_hex

    directory = os.path.join(state_dir, "said")
    for sentence in sentences:
        mark = os.path.join(directory, b2a_hex(sentence.encode()).decode()[:200])
        if os.path.exists(mark):
            continue
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError:
            pass  # then it is said again
        say(printable(sentence), f"`{verb}` shows all that holds; this is said once")
