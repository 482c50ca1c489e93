"""What `run` and `exec` share: a command somewhere else, as if it were here.

What this loads is counted (tests/cli/test_imports.py): it runs once for every command.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from agentkernel.cli.console import Console
from agentkernel.cli.notices import tell_version
from agentkernel.cli.outcome import Ended
from agentkernel.cli.terminal import Terminal
from agentkernel.client import frames
from agentkernel.client._sync.transport import CALL_SECONDS, Transport

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

_GRACE_SECONDS = 30.0


def fill_standard_descriptors() -> None:
    """A standard descriptor that is closed would be given to the next thing we open."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def command_fields(options: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """A *command* of the API, without what only a stream has."""
    command = {
        "argv": words,
        "env": dict(options.env),
        "cwd": options.workdir,
        "timeout_seconds": options.timeout,
        "output_bytes": options.output,
    }
    return {name: value for name, value in command.items() if value is not None}


def streamed(
    transport: Transport,
    path: str,
    command: dict[str, Any],
    options: argparse.Namespace,
    around: dict[str, Any] | None = None,
) -> Ended | int:
    """Carries a command out at this terminal: its end, or a code of our own.

    `around`: the first message, if the command is only its `command`.
    """
    terminal = Terminal.here(options.tty)
    command = command | {"stdin": sys.stdin is not None}
    if terminal:
        command["pty"] = terminal.size()
        command["env"] = {"TERM": terminal.kind, **command["env"]}
    first = command if around is None else around | {"command": command}
    web = transport.websocket(path)
    web.send(frames.TEXT, json.dumps(first).encode(), seconds=CALL_SECONDS)
    tell_version(transport)
    console = Console(
        web.stream.detach(),
        web.decoder,
        terminal=terminal,
        stdin=sys.stdin is not None,
        prepares=around is not None,
        quiet=getattr(options, "quiet", False),
        state_dir=transport.daemon.state_dir,
    )
    return console.attend()


def collected(
    transport: Transport, path: str, body: dict[str, Any], besides: dict[str, Any] | None = None
) -> int:
    """Carries a command out with all of stdin, and prints its result as one JSON object."""
    if sys.stdin is not None and not os.isatty(0):
        from binascii import b2a_base64

        body["stdin_b64"] = b2a_base64(sys.stdin.buffer.read(), newline=False).decode()
    limit = body.get("timeout_seconds")
    seconds = None if limit is None else limit + _GRACE_SECONDS
    answer = transport.call("POST", path, json=body, seconds=seconds)
    print(json.dumps(answer | (besides or {})))
    return 0
