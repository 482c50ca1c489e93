"""`agentkernel exec NAME -- CMD` and `attach JOB`: a command of a standing sandbox, as if here.

What this loads is counted (tests/cli/test_imports.py): it runs once for every command.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from agentkernel.cli.console import Console
from agentkernel.cli.fields import command_words
from agentkernel.cli.notices import tell_version
from agentkernel.cli.outcome import finish
from agentkernel.cli.terminal import Terminal
from agentkernel.client import frames
from agentkernel.client._sync.transport import CALL_SECONDS, Transport
from agentkernel.client.results import JobInfo
from agentkernel.client.wire import segment
from agentkernel.errors import ConflictError, InvalidInputError

_GRACE_SECONDS = 30.0


def main(options: argparse.Namespace) -> int:
    _fill_standard_descriptors()
    words = command_words(options)
    if not words:
        raise InvalidInputError("no command given", hint="agentkernel exec NAME -- CMD ARGS…")
    path = f"/v1/sandboxes/{segment(options.name)}/exec"
    transport = Transport()
    if options.json:
        return _to_json(transport, path, _command(options, words))
    terminal = Terminal.here(options.tty)
    command = _command(options, words) | {"stdin": sys.stdin is not None}
    if terminal:
        command["pty"] = terminal.size()
        command["env"] = {"TERM": terminal.kind, **dict(options.env)}
    web = transport.websocket(f"{path}/stream")
    web.send(frames.TEXT, json.dumps(command).encode(), seconds=CALL_SECONDS)
    tell_version(transport)
    console = Console(
        web.stream.detach(), web.decoder, terminal=terminal, stdin=sys.stdin is not None
    )
    ended = console.attend()
    return ended if isinstance(ended, int) else finish(ended, words[0], options.timeout)


def _command(options: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    command = {
        "argv": words,
        "env": dict(options.env),
        "cwd": options.workdir,
        "user": options.user,
        "timeout_seconds": options.timeout,
    }
    return {name: value for name, value in command.items() if value is not None}


def _to_json(transport: Transport, path: str, command: dict[str, Any]) -> int:
    if sys.stdin is not None and not os.isatty(0):
        from binascii import b2a_base64

        command["stdin_b64"] = b2a_base64(sys.stdin.buffer.read(), newline=False).decode()
    limit = command.get("timeout_seconds")
    seconds = None if limit is None else limit + _GRACE_SECONDS
    print(json.dumps(transport.call("POST", path, json=command, seconds=seconds)))
    return 0


def attach(options: argparse.Namespace) -> int:
    """Output of a job from its beginning, live to its end; Ctrl-C leaves it running."""
    _fill_standard_descriptors()
    transport = Transport()
    job = JobInfo.of(transport.call("GET", f"/v1/jobs/{segment(options.job)}"))
    if job.state == "lost":
        raise ConflictError("the job was lost with its sandbox's processes")
    tell_version(transport)
    web = transport.websocket(f"/v1/jobs/{job.id}/attach")
    console = Console(web.stream.detach(), web.decoder, stdin=options.stdin, follow=True)
    ended = console.attend()
    if isinstance(ended, int):
        return ended
    return finish(ended, job.argv[0], job.raw.get("timeout_seconds"))


def _fill_standard_descriptors() -> None:
    """A standard descriptor that is closed would be given to the next thing we open."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
