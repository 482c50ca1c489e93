"""What requests and answers hold, typed; docs/reference/http-api.md shows the same to readers."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from agentkernel.errors import InvalidInputError
from agentkernel.guest.file_types import Change, FileEntry
from agentkernel.guest.processes import ExitStatus, ProcessOptions
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.insight import Known
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import JobRecord, SandboxRecord
from agentkernel.trees.entries import to_bytes

MAX_OUTPUT_BYTES: Final = 64 << 20

Seconds = Annotated[float, Meta(gt=0, le=1e9)]
OutputBytes = Annotated[int, Meta(ge=0, le=MAX_OUTPUT_BYTES)]
StreamBytes = Annotated[int, Meta(ge=0, le=1 << 62)]
Size = Annotated[int, Meta(ge=1, le=65535)]
AtEnd = Literal["stop", "remove"]


class NewSandbox(SandboxSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It stays until somebody removes it, so it keeps its files unless told not to."""

    name: str | None = None
    labels: dict[str, str] = {}
    ttl_seconds: Seconds | None = None
    idle_seconds: Seconds | None = None
    on_ttl: AtEnd | None = None
    on_idle: AtEnd | None = None
    ephemeral: bool = False


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 5.0


class Extend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ttl_seconds: Seconds


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to choose yet."""


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    kill: bool = False


class Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every command has, wherever it runs."""

    argv: list[str] | None = None
    shell: str | None = None
    cwd: str | None = None
    timeout_seconds: Seconds | None = None

    def words(self) -> list[str]:
        return command_words(self.argv, self.shell)


class Command(Words, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of a stream or a job."""

    env: dict[str, str] = {}
    user: str | None = None
    stdin: bool = False
    pty: tuple[Size, Size] | None = None
    output_bytes: StreamBytes | None = None

    def options(self) -> ProcessOptions:
        return ProcessOptions(
            env=self.env,
            cwd=self.cwd,
            user=self.user,
            stdin=self.stdin,
            pty=self.pty,
            timeout_seconds=self.timeout_seconds,
        )


class Exec(Words, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command to its end, with its input and output in the bodies."""

    env: dict[str, str] = {}
    user: str | None = None
    stdin: str | None = None
    stdin_b64: str | None = None
    output_bytes: OutputBytes | None = None

    def options(self) -> ProcessOptions:
        return ProcessOptions(
            env=self.env, cwd=self.cwd, user=self.user, timeout_seconds=self.timeout_seconds
        )

    def input(self) -> bytes:
        return input_bytes(self.stdin, self.stdin_b64)


class Run(SandboxSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sandbox for one command: `env` and `user` are the sandbox's, and so the command's."""

    argv: list[str] | None = None
    shell: str | None = None
    cwd: str | None = None
    timeout_seconds: Seconds | None = None
    stdin: str | None = None
    stdin_b64: str | None = None
    output_bytes: OutputBytes | None = None
    ttl_seconds: Seconds | None = None

    def words(self) -> list[str]:
        return command_words(self.argv, self.shell)

    def options(self) -> ProcessOptions:
        return ProcessOptions(cwd=self.cwd, timeout_seconds=self.timeout_seconds)

    def input(self) -> bytes:
        return input_bytes(self.stdin, self.stdin_b64)


class RunStream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spec: SandboxSpec = SandboxSpec()
    command: Command
    ttl_seconds: Seconds | None = None


class MakeDirectory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    mode: str | None = None
    parents: bool = False
    user: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    to: str
    replace: bool = False
    user: str | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A control frame of a client: exactly one of these."""

    signal: Annotated[int, Meta(ge=1, le=64)] | None = None
    kill: bool = False
    eof: bool = False
    rows: Size | None = None
    columns: Size | None = None


def command_words(argv: list[str] | None, shell: str | None) -> list[str]:
    if (argv is None) == (shell is None):
        raise InvalidInputError("a command has either argv or shell")
    return ["sh", "-c", shell] if shell is not None else argv or []


def input_bytes(text: str | None, encoded: str | None) -> bytes:
    if text is not None and encoded is not None:
        raise InvalidInputError("there is either stdin or stdin_b64")
    if encoded is None:
        return (text or "").encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("stdin_b64 is not base64") from None


def octal(text: str | None) -> int | None:
    """A mode as people write it: 644 or 0755."""
    if text is None:
        return None
    try:
        mode = int(text.removeprefix("0o"), 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise InvalidInputError(f"{text!r} is not a mode such as 644")
    return mode


def sandbox_body(record: SandboxRecord) -> dict[str, Any]:
    """A sandbox as shown. Not its environment: that is where secrets are."""
    blueprint = record.blueprint
    return {
        "id": record.id,
        "name": record.name,
        "owner": record.owner,
        "state": record.state,
        "backend": record.backend,
        "image": blueprint.get("image"),
        "profile": blueprint.get("profile"),
        "user": blueprint.get("user"),
        "limits": blueprint.get("limits"),
        "ephemeral": record.ephemeral,
        "labels": record.labels,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "started_at": record.started_at,
        "expires_at": record.expires_at,
        "ttl_seconds": record.ttl_seconds,
        "idle_seconds": record.idle_seconds,
        "on_ttl": record.on_ttl,
        "on_idle": record.on_idle,
        "error": record.error,
        "config": record.config,
        "notices": Known.of(record).notices,
    }


def job_body(record: JobRecord) -> dict[str, Any]:
    options = {name: value for name, value in record.options.items() if name not in ("env", "job")}
    return {
        "id": record.id,
        "sandbox_id": record.sandbox_id,
        "argv": record.argv,
        **options,
        "state": record.state,
        "status": None if record.status is None else status_body(record.status),
        "created_at": record.created_at,
        "ended_at": record.ended_at,
    }


def status_body(status: ExitStatus | dict[str, Any]) -> dict[str, Any]:
    body = dict(status) if isinstance(status, dict) else msgspec.to_builtins(status)
    for name in ("errno", "stage", "full"):
        if body.get(name) is None:
            body.pop(name, None)
    body["truncated"] = body["dropped_bytes"] > 0
    return body


def result_body(result: ExecResult) -> dict[str, Any]:
    return {
        **status_body(result.status),
        **_text("stdout", result.stdout),
        **_text("stderr", result.stderr),
        "truncated": result.truncated,
        "dropped_bytes": result.dropped_bytes,
    }


def entry_body(entry: FileEntry) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(entry)
    for name in ("name", "target"):
        value = body.pop(name)
        if value is not None:
            body |= _text(name, to_bytes(value))
    return body


def change_body(change: Change) -> dict[str, Any]:
    body = _text("path", to_bytes(change.path))
    return body if change.to is None else body | _text("to", to_bytes(change.to))


def _text(name: str, data: bytes) -> dict[str, str]:
    """Text as it is; what is not UTF-8 as `…_b64`, never bent."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}
