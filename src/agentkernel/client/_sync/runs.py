# Generated from _async by tools/generate_sync_client.py. Change that, not this.
"""One command in a sandbox of its own, which is gone afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkernel.client._sync.commands import CommandStream, Command, command_body
from agentkernel.client._sync.transport import Transport, shared_transport
from agentkernel.client.results import CommandResult
from agentkernel.client.toolchains import host_environment
from agentkernel.client.wire import error_of
from agentkernel.errors import AgentKernelError

# What the daemon may take on top of a command's own time.
GRACE_SECONDS = 30.0


def run(
    command: Command,
    *,
    cwd: str | None = None,
    timeout_seconds: float | None = None,
    ttl_seconds: float | None = None,
    stdin: bytes | str | None = None,
    output_bytes: int | None = None,
    check: bool = False,
    transport: Transport | None = None,
    **spec: Any,
) -> CommandResult:
    """Runs a command to its end in a new sandbox; `spec` has the fields of `SandboxSpec`.

    A string is for a shell, a list is argv. A command that fails is a result; with `check` it is a
    CommandFailedError. The sandbox is removed whatever happens, also if this process is killed.
    """
    options = {"cwd": cwd, "timeout_seconds": timeout_seconds, "ttl_seconds": ttl_seconds}
    transport = transport or shared_transport()
    wanted = {"host_env": host_environment(transport.daemon), **spec}
    result = finish(transport, "/v1/run", command, options, stdin, output_bytes, wanted)
    return result.check() if check else result


def run_batch(
    commands: Sequence[Command],
    *,
    parallel: int | None = None,
    cwd: str | None = None,
    timeout_seconds: float | None = None,
    ttl_seconds: float | None = None,
    output_bytes: int | None = None,
    transport: Transport | None = None,
    **spec: Any,
) -> list[CommandResult | AgentKernelError]:
    """Runs up to 64 commands to their ends, each in a sandbox of its own, `parallel` at a time.

    The answers are in the order of the commands. One that could not be run is the error that says
    why, and stops none of the others.
    """
    transport = transport or shared_transport()
    options = {"cwd": cwd, "timeout_seconds": timeout_seconds, "output_bytes": output_bytes}
    wanted = {
        "spec": {"host_env": host_environment(transport.daemon), **spec},
        "commands": [command_body(command, options) for command in commands],
        "parallel": parallel,
        "ttl_seconds": ttl_seconds,
    }
    body = transport.call(
        "POST",
        "/v1/run/batch",
        json={key: value for key, value in wanted.items() if value is not None},
        seconds=None,
    )
    return [
        error_of(entry["error"]) if "error" in entry else CommandResult.of(entry["result"])
        for entry in body["results"]
    ]


def run_stream(
    command: Command,
    *,
    cwd: str | None = None,
    timeout_seconds: float | None = None,
    ttl_seconds: float | None = None,
    stdin: bool = False,
    pty: tuple[int, int] | None = None,
    output_bytes: int | None = None,
    transport: Transport | None = None,
    **spec: Any,
) -> CommandStream:
    """The same with output that is read while the command runs; `pty` is rows and columns."""
    options = {
        "cwd": cwd,
        "timeout_seconds": timeout_seconds,
        "stdin": stdin or None,
        "pty": None if pty is None else [*pty],
        "output_bytes": output_bytes,
    }
    transport = transport or shared_transport()
    first: dict[str, Any] = {
        "spec": {"host_env": host_environment(transport.daemon), **spec},
        "command": command_body(command, options),
    }
    if ttl_seconds is not None:
        first["ttl_seconds"] = ttl_seconds
    return CommandStream(transport, "/v1/run/stream", first=first)


def finish(
    transport: Transport,
    path: str,
    command: Command,
    options: Mapping[str, Any],
    stdin: bytes | str | None,
    output_bytes: int | None,
    spec: Mapping[str, Any],
) -> CommandResult:
    """A command to its end, in one call."""
    body = {**spec, **command_body(command, {**options, "output_bytes": output_bytes})}
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif stdin is not None:
        from binascii import b2a_base64

        body["stdin_b64"] = b2a_base64(stdin, newline=False).decode()
    limit = options.get("timeout_seconds")
    if may_be_fetched(spec):
        limit = None  # the command's own time is the daemon's to keep
    seconds = None if limit is None else limit + GRACE_SECONDS
    return CommandResult.of(transport.call("POST", path, json=body, seconds=seconds))


def may_be_fetched(spec: Mapping[str, Any]) -> bool:
    """Whether a sandbox has to wait for as long as a registry takes: its image is neither the
    machine's nor a directory's."""
    image = str(spec.get("image") or "host")
    return image != "host" and not image.startswith(("/", ".", "~"))
