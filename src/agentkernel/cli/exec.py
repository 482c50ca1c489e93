"""`agentkernel exec NAME -- CMD` and `attach JOB`: a command of a standing sandbox, as if here."""

from __future__ import annotations

import argparse

from agentkernel.cli.console import Console
from agentkernel.cli.fields import command_words
from agentkernel.cli.foreground import (
    collected,
    command_fields,
    fill_standard_descriptors,
    streamed,
)
from agentkernel.cli.notices import tell_version
from agentkernel.cli.outcome import finish, say
from agentkernel.cli.terminal import Terminal
from agentkernel.client._sync.transport import Transport
from agentkernel.client.wire import segment
from agentkernel.errors import ConflictError, InvalidInputError

# Of what a terminal has shown: enough for a screen of it, with its colours.
RECENT = 1 << 16


def main(options: argparse.Namespace) -> int:
    fill_standard_descriptors()
    words = command_words(options)
    if not words:
        raise InvalidInputError("no command given", hint="agentkernel exec NAME -- CMD ARGS…")
    path = f"/v1/sandboxes/{segment(options.name)}/exec"
    transport = Transport()
    command = command_fields(options, words)
    if options.user is not None:
        command["user"] = options.user
    if options.json:
        return collected(transport, path, command)
    ended = streamed(transport, f"{path}/stream", command, options)
    return ended if isinstance(ended, int) else finish(ended, words[0], options.timeout)


def attach(options: argparse.Namespace) -> int:
    """Output of a job from its beginning, live to its end; Ctrl-C leaves it running. One with a
    terminal is shown on this one, if it is one."""
    from agentkernel.client.results import JobInfo

    fill_standard_descriptors()
    transport = Transport()
    job = JobInfo.of(transport.call("GET", f"/v1/jobs/{segment(options.job)}"))
    if job.state == "lost":
        raise ConflictError("the job was lost with its sandbox's processes")
    tell_version(transport)
    terminal = Terminal.here(None) if job.raw.get("pty") and job.state == "running" else None
    query: dict[str, int] = {}
    if terminal is not None:
        rows, columns = terminal.size()
        query = {"rows": rows, "columns": columns, "recent": RECENT}
        say("Ctrl-\\ twice leaves it running")
    web = transport.websocket(f"/v1/jobs/{job.id}/attach", query=query)
    console = Console(
        web.stream.detach(),
        web.decoder,
        terminal=terminal,
        stdin=options.stdin or terminal is not None,
        follow=True,
    )
    ended = console.attend()
    if console.left:
        say(f"left running; back to it: agentkernel attach {job.id}")
    if isinstance(ended, int):
        return ended
    return finish(ended, job.argv[0], job.raw.get("timeout_seconds"))
