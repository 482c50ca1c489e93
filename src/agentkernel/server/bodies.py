"""What requests hold, typed; docs/reference/http-api.md shows the same to readers."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from agentkernel.errors import InvalidInputError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.images.model import image_kind
from agentkernel.kernel.spec import SandboxSpec

MAX_OUTPUT_BYTES: Final = 64 << 20
# Of one answer with many results: what they may hold together is the product of these, twice.
MAX_BATCH: Final = 64
MAX_BATCH_OUTPUT_BYTES: Final = 1 << 20
MAX_PARALLEL: Final = 16

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


class BatchCommand(Exec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as one of many, whose output is kept till the last of them has ended."""

    output_bytes: Annotated[int, Meta(ge=0, le=MAX_BATCH_OUTPUT_BYTES)] = 256 << 10


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

    def check(self) -> None:
        check_first(self.argv, self.shell, self)

    def options(self) -> ProcessOptions:
        return ProcessOptions(cwd=self.cwd, timeout_seconds=self.timeout_seconds)

    def input(self) -> bytes:
        return input_bytes(self.stdin, self.stdin_b64)


class RunBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands that each get a sandbox of their own of the same spec, `parallel` at a time."""

    spec: SandboxSpec = SandboxSpec()
    commands: Annotated[list[BatchCommand], Meta(min_length=1, max_length=MAX_BATCH)]
    parallel: Annotated[int, Meta(ge=1, le=MAX_PARALLEL)] = 4
    ttl_seconds: Seconds | None = None


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


def check_first(argv: list[str] | None, shell: str | None, spec: SandboxSpec) -> None:
    """Raises InvalidInputError for what can't be the command of a sandbox of its own: an image may
    have one, and nothing else has."""
    if shell is not None or image_kind(spec.image) != "oci":
        command_words(argv, shell)
        if shell is None and not argv:
            raise InvalidInputError("a command needs at least one word")


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
