"""`agentkernel run -- CMD`: a new sandbox, one command, nothing left."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import signal
import sys
from typing import Any

import msgspec

from agentkernel.backends.base import Sandbox, notices
from agentkernel.cli import project
from agentkernel.cli.notices import tell_once
from agentkernel.cli.options import spec_of
from agentkernel.cli.outcome import BROKEN_PIPE, TERMINATED, finish, say
from agentkernel.cli.pipes import feed_stdin, write_out
from agentkernel.cli.terminal import Terminal
from agentkernel.errors import InvalidInputError, SandboxUnavailableError
from agentkernel.guest.processes import GuestProcess, ProcessOptions
from agentkernel.guest.protocol import Channel
from agentkernel.kernel.commands import ExecResult, judge, run_command, start_command
from agentkernel.kernel.runs import Runs

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise InvalidInputError("no command given", hint="agentkernel run -- CMD ARGS…")
    project.apply(options)
    try:
        return asyncio.run(_run(options, argv))
    except asyncio.CancelledError:
        return TERMINATED


async def _run(options: argparse.Namespace, argv: list[str]) -> int:
    terminal = Terminal.here(options.tty) if not options.json else None
    # Until the command runs, SIGTERM and SIGHUP end us as Ctrl-C does: by unwinding, so that what
    # was begun is removed. From then on the command gets them.
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with Runs() as runs:
        sandbox = await runs.create(spec_of(options), _progress(options))
        if not options.quiet and not options.json:
            _say_once(runs, sandbox)
        process_options = _process_options(options, terminal)
        if options.json:
            return await _run_to_json(sandbox, argv, process_options, options.command_output)
        process = start_command(sandbox, argv, process_options)
        code = await _attend(process, terminal)
        status = judge(sandbox, process.status)
    return finish(status, argv[0], options.timeout) if code is None else code


def _process_options(options: argparse.Namespace, terminal: Terminal | None) -> ProcessOptions:
    environment = dict(options.env)
    if terminal and "TERM" not in environment:
        environment["TERM"] = terminal.kind
    return ProcessOptions(
        env=environment,
        cwd=options.workdir,
        stdin=not options.json,
        pty=terminal.size() if terminal else None,
        timeout_seconds=options.timeout,
    )


async def _attend(process: GuestProcess, terminal: Terminal | None) -> int | None:
    """Carries bytes and signals both ways until the command ends. A code of ours, or None."""
    loop = asyncio.get_running_loop()
    counts = dict.fromkeys(_FORWARDED, 0)

    def forward(number: signal.Signals) -> None:
        counts[number] += 1
        if counts[number] > 1 and number in (signal.SIGINT, signal.SIGTERM):
            process.kill()  # asked twice: it did not listen
        else:
            process.signal(number)

    for number in _FORWARDED:
        loop.add_signal_handler(number, forward, number)
    if terminal:
        loop.add_signal_handler(signal.SIGWINCH, lambda: process.resize(*terminal.size()))
    feed_stdin(process, loop)
    try:
        with terminal.raw() if terminal else contextlib.nullcontext():
            while (part := await process.output()) is not None:
                await write_out(1 if part.channel is Channel.STDOUT else 2, part.data)
    except BrokenPipeError:
        process.kill()
        return BROKEN_PIPE
    except SandboxUnavailableError:
        return None  # the outcome says `lost`
    return None


async def _run_to_json(
    sandbox: Sandbox, argv: list[str], options: ProcessOptions, output: int | None
) -> int:
    data = b"" if sys.stdin is None or sys.stdin.isatty() else await asyncio.to_thread(_read_stdin)
    kept = 16 << 20 if output is None else output
    result = await run_command(sandbox, argv, options, stdin=data, output_bytes=kept)
    print(json.dumps(result_json(result)))
    return 0


def result_json(result: ExecResult) -> dict[str, Any]:
    status = result.status
    body: dict[str, Any] = {
        "outcome": status.outcome.value,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "truncated": result.truncated,
        "dropped_bytes": result.dropped_bytes,
        "usage": msgspec.to_builtins(status.usage),
    }
    if status.errno:
        body |= {"errno": status.errno, "stage": status.stage}
    for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        try:
            body[name] = data.decode()
        except UnicodeDecodeError:
            body[f"{name}_b64"] = base64.b64encode(data).decode()
    return body


def _read_stdin() -> bytes:
    return sys.stdin.buffer.read()


def _progress(options: argparse.Namespace) -> Any:
    return None if options.quiet else lambda text: say(f"{text} …")


def _say_once(runs: Runs, sandbox: Sandbox) -> None:
    """A profile's default that can't be enforced is said once for each state directory."""
    tell_once(str(runs.state_dir), notices(sandbox.effective), "agentkernel info")
