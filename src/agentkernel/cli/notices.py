"""What the command line says beside the answer, on stderr."""

from __future__ import annotations

import os
from collections.abc import Iterable

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


def tell_once(state_dir: str, sentences: Iterable[str], verb: str) -> None:
    """A limit that does not hold is said once for each state directory; `verb` always shows it."""
    import hashlib

    for sentence in sentences:
        mark = os.path.join(state_dir, "said", hashlib.sha256(sentence.encode()).hexdigest()[:32])
        if not os.path.exists(mark):
            os.makedirs(os.path.dirname(mark), exist_ok=True)
            with open(mark, "w", encoding="utf-8"):
                say(sentence, f"`{verb}` shows all that holds; this is said once")
