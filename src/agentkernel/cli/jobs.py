"""`agentkernel job …`: commands that go on without anybody listening."""

from __future__ import annotations

import argparse
import json
import os
import signal
from typing import Any

from agentkernel.cli.fields import command_words
from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import BROKEN_PIPE
from agentkernel.cli.tables import ago, show
from agentkernel.cli.terminal import Terminal
from agentkernel.client._sync.jobs import Job, find_job, list_jobs
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import JobInfo
from agentkernel.errors import InvalidInputError


def main(options: argparse.Namespace) -> int:
    if options.verb == "attach":
        from agentkernel.cli import exec

        return exec.attach(options)
    verbs = {"start": _start, "list": _list, "info": _info, "logs": _logs, "kill": _kill}
    with Connected() as transport:
        return verbs[options.verb](options, transport)


def _start(options: argparse.Namespace, transport: Transport) -> int:
    words = command_words(options)
    if not words:
        raise InvalidInputError("no command given", hint="agentkernel job start NAME -- CMD ARGS…")
    job = Sandbox.connect(options.name, transport=transport).jobs.start(
        words,
        env={**({"TERM": Terminal().kind} if options.tty else {}), **dict(options.env)},
        cwd=options.workdir,
        user=options.user,
        timeout_seconds=options.timeout,
        stdin=options.stdin or None,
        pty=Terminal().size() if options.tty else None,
        output_bytes=options.output,
    )
    print(json.dumps(job.info.raw) if options.json else job.id)
    return 0


def _list(options: argparse.Namespace, transport: Transport) -> int:
    if options.name is None:
        jobs = list_jobs(transport=transport)
    else:
        jobs = Sandbox.connect(options.name, transport=transport).jobs.list()
    if options.json:
        print(json.dumps({"jobs": [job.info.raw for job in jobs]}))
        return 0
    rows = [
        (job.id, job.info.state, _end(job.info), ago(job.info.created_at), " ".join(job.info.argv))
        for job in jobs
    ]
    show(("JOB", "STATUS", "EXIT", "AGE", "COMMAND"), rows)
    return 0


def _end(info: JobInfo) -> str:
    if info.result is None:
        return "-"
    code = info.result.exit_code
    return str(info.result.outcome) if code is None else str(code)


def _info(options: argparse.Namespace, transport: Transport) -> int:
    raw = find_job(transport, options.job).info.raw
    if options.json:
        print(json.dumps(raw))
    else:
        show(("FIELD", "VALUE"), [(key, _plain(value)) for key, value in raw.items()])
    return 0


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _logs(options: argparse.Namespace, transport: Transport) -> int:
    """What it wrote so far; with --follow to its end."""
    job: Job = find_job(transport, options.job)
    with job.output(follow=options.follow) as output:
        try:
            for chunk in output:
                _write(1 if chunk.stream == "stdout" else 2, chunk.data)
        except BrokenPipeError:
            return BROKEN_PIPE
    return 0


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _kill(options: argparse.Namespace, transport: Transport) -> int:
    job = find_job(transport, options.job)
    if options.signal is None:
        job.kill()
    else:
        job.signal(_number(options.signal))
    if options.json:
        print(json.dumps(job.refresh().raw))
    return 0


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 4:
        return int(text)
    name = text.upper()
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].value
    except KeyError:
        raise InvalidInputError(f"{text!r} is not a signal", hint="such as TERM or 15") from None
