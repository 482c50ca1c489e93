"""The rows of the store as typed records, and what may be written into them.

A record that goes in comes out equal. What JSON would change on the way (NaN, bytes, keys that are
no strings) is refused, not bent; only tuples become lists.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from agentkernel.errors import InvalidInputError, StateCorruptError
from agentkernel.ids import check_name

MAX_JSON_BYTES = 1 << 20
MAX_LABELS = 128

SandboxState = Literal["creating", "running", "stopped", "removing", "error"]
JobState = Literal["running", "ended", "lost"]
VolumeState = Literal["creating", "ready", "removing"]
SessionState = Literal["starting", "running", "ended", "failed", "lost"]
SessionMode = Literal["headless", "interactive", "acp"]
AtEnd = Literal["stop", "remove"]

Id = Annotated[str, Meta(pattern=r"\A[a-z0-9]{20}\Z")]
Owner = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f\ud800-\udfff]{1,256}\Z")]
Kind = Annotated[str, Meta(pattern=r"\A[a-z0-9_]+(\.[a-z0-9_]+)*\Z", max_length=64)]
# Unix seconds. The bounds are there to refuse NaN, infinity and milliseconds.
Time = Annotated[float, Meta(ge=0, le=253_402_300_800)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
LabelKey = Annotated[str, Meta(min_length=1, max_length=256)]
LabelValue = Annotated[str, Meta(max_length=4096)]
Labels = Annotated[dict[LabelKey, LabelValue], Meta(max_length=MAX_LABELS)]


class Overseer(str):
    """An owner who finds the sandboxes of all others too, by their ids. Names are its own ones'."""

    __slots__ = ()


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox. `blueprint`, `config` and `handle` belong to the kernel and the backend: opaque
    here. `config` says which files the sandbox was made from, and never changes. `network`: what it
    may reach; None: it was made without a way out. `ports`: the published ones."""

    id: Id
    name: str | None = None
    owner: Owner
    backend: Annotated[str, Meta(min_length=1, max_length=64)]
    state: SandboxState = "creating"
    blueprint: dict[str, Any]
    env: dict[str, str] = {}
    labels: Labels = {}
    ephemeral: bool = False
    created_at: Time
    updated_at: Time
    started_at: Time | None = None
    ttl_seconds: Seconds | None = None
    idle_seconds: Seconds | None = None
    on_ttl: AtEnd = "stop"
    on_idle: AtEnd = "stop"
    expires_at: Time | None = None
    handle: dict[str, Any] | None = None
    error: str | None = None
    config: dict[str, Any] | None = None
    network: dict[str, Any] | None = None
    ports: list[dict[str, Any]] | None = None


class SandboxChanges(TypedDict, total=False):
    """What of a sandbox may change; `updated_at` follows by itself."""

    name: str | None
    state: SandboxState
    blueprint: dict[str, Any]
    env: dict[str, str]
    labels: dict[str, str]
    started_at: float | None
    ttl_seconds: float | None
    idle_seconds: float | None
    on_ttl: AtEnd
    on_idle: AtEnd
    expires_at: float | None
    handle: dict[str, Any] | None
    error: str | None
    network: dict[str, Any] | None
    ports: list[dict[str, Any]] | None


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A background command. `status` is there once it ended; of a lost one nobody knows it."""

    id: Id
    sandbox_id: Id
    argv: Annotated[list[str], Meta(min_length=1)]
    options: dict[str, Any] = {}
    state: JobState = "running"
    status: dict[str, Any] | None = None
    created_at: Time
    ended_at: Time | None = None


class JobChanges(TypedDict, total=False):
    """What of a job may change."""

    options: dict[str, Any]
    state: JobState
    status: dict[str, Any] | None
    ended_at: float | None


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. `last_used_at` is coarse; what is revoked never comes back."""

    id: Id
    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,62}\Z")]
    owner: Owner
    scopes: list[str]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    created_at: Time
    expires_at: Time | None = None
    last_used_at: Time | None = None
    revoked_at: Time | None = None


class VolumeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A volume. One that is not `ready` is nobody's to use: it is not there yet, or not any more.
    `exclusive`: at most one running sandbox has it. `quota_bytes`: the size of its own disk."""

    id: Id
    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,62}\Z")]
    owner: Owner
    state: VolumeState = "creating"
    exclusive: bool = False
    quota_bytes: Annotated[int, Meta(ge=0, le=1 << 60)] | None = None
    created_at: Time


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's session. `own_sandbox`: the sandbox was made for it. `job_id` is known before the
    job is there. `task`: its beginning. `request`: what was asked for, without secrets."""

    id: Id
    owner: Owner
    agent: Annotated[str, Meta(min_length=1, max_length=32)]
    version: Annotated[str, Meta(max_length=64)] = ""
    mode: SessionMode
    state: SessionState = "starting"
    sandbox_id: Id
    own_sandbox: bool = False
    job_id: Id
    task: Annotated[str, Meta(max_length=4096)] | None = None
    model: str | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    conversation: Annotated[str, Meta(max_length=512)] | None = None
    created_at: Time
    ended_at: Time | None = None
    exit_code: int | None = None
    error: str | None = None
    usage: dict[str, Any] = {}
    request: dict[str, Any] = {}


class SessionChanges(TypedDict, total=False):
    """What of a session may change."""

    state: SessionState
    conversation: str | None
    ended_at: float | None
    exit_code: int | None
    error: str | None
    usage: dict[str, Any]


class SessionRows(NamedTuple):
    """As a SandboxPage."""

    records: list[SessionRecord]
    next: int | None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to append. `at` is now, and `owner` its sandbox's, unless given."""

    kind: Kind
    body: dict[str, Any] = {}
    sandbox_id: Id | None = None
    owner: Owner | None = None
    at: Time | None = None


def event_of(record: SandboxRecord, kind: str, **body: Any) -> NewEvent:
    return NewEvent(kind=kind, sandbox_id=record.id, owner=record.owner, body=body)


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `seq` grows and is never used twice; events outlive their sandbox."""

    seq: int
    at: Time
    sandbox_id: Id | None
    owner: Owner | None
    kind: Kind
    body: dict[str, Any]


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A key that makes a create safe to repeat, and what tells its requests apart."""

    key: Annotated[str, Meta(min_length=1, max_length=256)]
    fingerprint: Annotated[str, Meta(min_length=1, max_length=256)]


class Inserted(NamedTuple):
    """`created` is False when an idempotency key led to the sandbox of an earlier call."""

    record: SandboxRecord
    created: bool


class SandboxPage(NamedTuple):
    """`next` is the `after` of the following page; None: there is none."""

    records: list[SandboxRecord]
    next: int | None


class JobPage(NamedTuple):
    """As a SandboxPage."""

    records: list[JobRecord]
    next: int | None


class EventPage(NamedTuple):
    """Events in order, and where to go on.

    `gap`: events after the asked-for seq are not kept any more, or never were ours; whoever relied
    on seeing each has to look at the state anew. `oldest` is the first seq that may still be there.
    """

    records: list[EventRecord]
    next: int
    oldest: int
    newest: int
    gap: bool


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about the store itself."""

    schema_version: int
    sandboxes: dict[str, int]
    jobs: dict[str, int]
    events: int
    oldest_event: int
    newest_event: int
    dropped_events: int
    writes: int
    transactions: int
    failed_syncs: int
    database_bytes: int
    wal_bytes: int


R = TypeVar(
    "R",
    SandboxRecord, JobRecord, NewEvent, Idempotency, TokenRecord, VolumeRecord, SessionRecord,
)  # fmt: skip
S = TypeVar("S", SandboxRecord, JobRecord, EventRecord, TokenRecord, VolumeRecord, SessionRecord)

_JSON: dict[type, tuple[str, ...]] = {
    SandboxRecord: ("blueprint", "env", "labels", "handle", "config", "network", "ports"),
    JobRecord: ("argv", "options", "status"),
    NewEvent: ("body",),
    EventRecord: ("body",),
    Idempotency: (),
    TokenRecord: ("scopes",),
    VolumeRecord: (),
    SessionRecord: ("usage", "request"),
}
_NOUNS: dict[type, str] = {
    SandboxRecord: "sandbox",
    JobRecord: "job",
    NewEvent: "event",
    Idempotency: "idempotency key",
    TokenRecord: "token",
    VolumeRecord: "volume",
    SessionRecord: "session",
}
_FIELDS: dict[type, tuple[str, ...]] = {
    kind: kind.__struct_fields__
    for kind in (
        SandboxRecord,
        JobRecord,
        EventRecord,
        TokenRecord,
        VolumeRecord,
        SessionRecord,
    )  # fmt: skip
}
COLUMNS: dict[type, str] = {kind: ", ".join(fields) for kind, fields in _FIELDS.items()}
SANDBOX_CHANGES = frozenset(SandboxChanges.__annotations__)
JOB_CHANGES = frozenset(JobChanges.__annotations__)
SESSION_CHANGES = frozenset(SessionChanges.__annotations__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# What is large and seldom changes: a thousand commands in a sandbox hold one of it. Nobody writes
# into what a record holds.
_READ = dict.fromkeys(("blueprint", "network"), lru_cache(maxsize=512)(_decode))


def to_row(record: R, only: Container[str] | None = None) -> tuple[R, dict[str, Any]]:
    """The record as it will come back, and its columns. Raises InvalidInputError.

    With `only`, other columns of JSON are left as values: an update does not write them.
    """
    kind = type(record)
    values = msgspec.structs.asdict(record)
    texts: dict[str, str] = {}
    for name in _JSON[kind]:
        if values[name] is not None and (only is None or name in only):
            texts[name], values[name] = _json(values[name], f"{name} of the {_NOUNS[kind]}")
    try:
        record = msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        raise InvalidInputError(f"the {_NOUNS[kind]} can't be stored: {exc}") from None
    if isinstance(record, SandboxRecord) and record.name is not None:
        check_name(record.name)
    values.update(texts)
    return record, values


def from_row(kind: type[S], row: Sequence[Any]) -> S:
    """The record of a row whose columns are `COLUMNS[kind]`.

    Not validated: a rule that became stricter must not make older rows unreadable.
    """
    values = dict(zip(_FIELDS[kind], row, strict=True))
    try:
        for name in _JSON[kind]:
            if values[name] is not None:
                values[name] = _READ.get(name, _decode)(values[name])
    except msgspec.DecodeError as exc:
        raise StateCorruptError(f"a row of the state can't be read: {exc}") from None
    for flag in ("ephemeral", "exclusive", "own_sandbox"):
        if flag in values:
            values[flag] = bool(values[flag])
    return kind(**values)


def check_changes(names: Iterable[str], allowed: frozenset[str]) -> None:
    if unknown := set(names) - allowed:
        raise InvalidInputError(f"can't be changed: {', '.join(sorted(unknown))}")


def _json(value: Any, what: str) -> tuple[str, Any]:
    """The JSON text of a value, and the value as that text gives it back."""
    try:
        data = _encode(value)
        plain = _decode(data)
        same = plain == value or _same(plain, value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidInputError(f"the {what} can't be written as JSON: {exc}") from None
    if not same:
        raise InvalidInputError(
            f"the {what} would come back changed from JSON",
            hint="use only text, finite numbers, true, false, null, lists, and text as keys",
        )
    if len(data) > MAX_JSON_BYTES:
        raise InvalidInputError(f"the {what} is larger than {MAX_JSON_BYTES >> 20} MiB")
    return data.decode(), plain


def _same(plain: Any, value: Any) -> bool:
    """Equality that takes a tuple for a list."""
    if isinstance(plain, dict):
        return (
            isinstance(value, dict)
            and plain.keys() == value.keys()
            and all(_same(plain[key], value[key]) for key in plain)
        )
    if isinstance(plain, list):
        return (
            isinstance(value, list | tuple)
            and len(plain) == len(value)
            and all(map(_same, plain, value))
        )
    return bool(plain == value)
