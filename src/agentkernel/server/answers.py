"""What answers hold, typed; docs/reference/http-api.md shows the same to readers.

A field that is UNSET is not there. Values that stand in our own records are passed on as they are:
what is written here of them is what the records hold.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from agentkernel.backends.base import EffectiveLine, SandboxUsage
from agentkernel.guest.file_types import Change, FileEntry
from agentkernel.guest.processes import ExitStatus, Outcome, Usage
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.insight import Known
from agentkernel.kernel.spec import ConfigOrigin
from agentkernel.kernel.store import JobRecord, SandboxRecord
from agentkernel.kernel.store.records import AtEnd, JobState, SandboxState
from agentkernel.security.profiles import Limits
from agentkernel.trees.entries import FileType, to_bytes

Text = str | UnsetType


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong (RFC 9457). `code` is one of a closed list, `hint` says what to do about it,
    and with `retryable` the same call may succeed later."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retryable: bool
    hint: Text = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """`api` is the number in the paths."""

    version: str
    api: int
    pid: int
    started_at: float
    state_dir: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Sandboxes and jobs by state; `memory_bytes` is the daemon's own."""

    sandboxes: dict[str, int]
    jobs: dict[str, int]
    memory_bytes: int
    uptime_seconds: float


class Accepted(msgspec.Struct, frozen=True):
    """It was heard, and happens."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as shown. Not its environment: that is where secrets are."""

    id: str
    name: str | None
    state: SandboxState
    backend: str
    image: str | None
    profile: str | None
    user: str | None
    limits: Limits | None
    ephemeral: bool
    labels: dict[str, str]
    created_at: float
    updated_at: float
    started_at: float | None
    expires_at: float | None
    ttl_seconds: float | None
    idle_seconds: float | None
    on_ttl: AtEnd
    on_idle: AtEnd
    error: str | None
    config: ConfigOrigin | None
    notices: list[str]


class SandboxDetail(Sandbox, frozen=True, kw_only=True):
    """With what holds in it and what it has used: now, or in its last run."""

    effective: tuple[EffectiveLine, ...]
    usage: SandboxUsage | None


class SandboxPage(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is the `after` of the following page; null: there is none."""

    sandboxes: list[Sandbox]
    next: int | None


class CommandStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `exit_code` is null unless it exited: none is ever invented. `errno` and
    `stage` say why it could not be started; `full`: file systems without room when it ended."""

    outcome: Outcome
    exit_code: int | None
    signal: int | None
    errno: Text = UNSET
    stage: Text = UNSET
    dropped_bytes: int
    usage: Usage
    full: Text = UNSET
    truncated: bool


class Result(CommandStatus, frozen=True, kw_only=True):
    """The same with what it wrote: text, or `…_b64` if that is not UTF-8."""

    stdout: Text = UNSET
    stdout_b64: Text = UNSET
    stderr: Text = UNSET
    stderr_b64: Text = UNSET


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is there once it ended; of a lost one nobody knows it."""

    id: str
    sandbox_id: str
    argv: list[str]
    cwd: str | None
    user: str | None
    stdin: bool
    pty: tuple[int, int] | None
    timeout_seconds: float | None
    output_bytes: int | None
    state: JobState
    status: CommandStatus | None
    created_at: float
    ended_at: float | None


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[Job]


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is the `after` of the following page; null: there is none."""

    jobs: list[Job]
    next: int | None


class SandboxUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox has used since it was started, or in its last run; null: nobody knows."""

    state: SandboxState
    usage: SandboxUsage | None


class BatchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One of both: how a command ended, or why it was not run."""

    result: Result | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the commands."""

    results: list[BatchEntry]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The file's size now."""

    size: int


class TreeWritten(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    bytes: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A file. `mode` is a number; a name or target that is not UTF-8 is `…_b64`."""

    name: Text = UNSET
    name_b64: Text = UNSET
    type: FileType
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ms: int
    target: Text = UNSET
    target_b64: Text = UNSET


class EntryList(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[Entry]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. `seq` grows, and is the event's id."""

    seq: int
    at: float
    kind: str
    sandbox_id: str | None
    body: dict[str, Any]


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events were lost: look at the state anew. `oldest` is the first that may still be there."""

    oldest: int
    newest: int


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A change below what is watched; paths are relative to it, empty for that itself."""

    path: Text = UNSET
    path_b64: Text = UNSET
    to: Text = UNSET
    to_b64: Text = UNSET


class Ended(msgspec.Struct, frozen=True):
    """Nothing more comes."""


def sandbox_of(record: SandboxRecord) -> Sandbox:
    return Sandbox(**_shown(record))


def sandbox_detail(record: SandboxRecord, known: Known) -> SandboxDetail:
    return SandboxDetail(**_shown(record), effective=known.effective, usage=known.usage)


def _shown(record: SandboxRecord) -> dict[str, Any]:
    blueprint = record.blueprint
    return {
        "id": record.id,
        "name": record.name,
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


def job_of(record: JobRecord) -> Job:
    options = record.options
    status = record.status
    return Job(
        id=record.id,
        sandbox_id=record.sandbox_id,
        argv=record.argv,
        cwd=options.get("cwd"),
        user=options.get("user"),
        stdin=bool(options.get("stdin")),
        pty=options.get("pty"),
        timeout_seconds=options.get("timeout_seconds"),
        output_bytes=options.get("output_bytes"),
        state=record.state,
        status=None if status is None else status_of(msgspec.convert(status, ExitStatus)),
        created_at=record.created_at,
        ended_at=record.ended_at,
    )


def status_of(status: ExitStatus) -> CommandStatus:
    return CommandStatus(**status_fields(status), truncated=status.dropped_bytes > 0)


def status_fields(status: ExitStatus) -> dict[str, Any]:
    """All but `truncated`, which is a matter of what was delivered."""
    return {
        "outcome": status.outcome,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "errno": _given(status.errno),
        "stage": _given(status.stage),
        "dropped_bytes": status.dropped_bytes,
        "usage": status.usage,
        "full": _given(status.full),
    }


def result_of(result: ExecResult) -> Result:
    fields = status_fields(result.status) | {"dropped_bytes": result.dropped_bytes}
    return Result(
        **fields,
        **text_or_bytes("stdout", result.stdout),
        **text_or_bytes("stderr", result.stderr),
        truncated=result.truncated,
    )


def entry_of(entry: FileEntry) -> Entry:
    target = {} if entry.target is None else text_or_bytes("target", to_bytes(entry.target))
    return Entry(
        **text_or_bytes("name", to_bytes(entry.name)),
        type=entry.type,
        size=entry.size,
        mode=entry.mode,
        uid=entry.uid,
        gid=entry.gid,
        mtime_ms=entry.mtime_ms,
        **target,
    )


def changed_of(change: Change) -> Changed:
    to = {} if change.to is None else text_or_bytes("to", to_bytes(change.to))
    return Changed(**text_or_bytes("path", to_bytes(change.path)), **to)


def text_or_bytes(name: str, data: bytes) -> dict[str, Any]:
    """Text as it is; what is not UTF-8 as `…_b64`, never bent."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}


def _given(value: str | None) -> Text:
    return UNSET if value is None else value
