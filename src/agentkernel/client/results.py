"""What the clients give back: plain values, no connection in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

from agentkernel.client.wire import broken
from agentkernel.errors import CommandFailedError, CommandTimeoutError
from agentkernel.outcomes import Outcome, signal_name

T = TypeVar("T")


@contextmanager
def _understood() -> Iterator[None]:
    """A daemon of another version, or one that is none, may answer anything."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise broken("it lacks a field, or has another kind of it") from None


def _of_kind(body: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    value = body.get(key)
    if value is not None and not isinstance(value, kind):
        raise TypeError(key)
    return value


class CommandResult(NamedTuple):
    """How a command ended. `exit_code` is None unless it exited: none is ever invented.

    What it used is None where nobody could count it. `output_bytes` is all that it wrote.
    """

    outcome: Outcome
    exit_code: int | None
    signal: int | None
    stdout_bytes: bytes
    stderr_bytes: bytes
    truncated: bool
    dropped_bytes: int
    errno: str | None
    stage: str | None
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    disk_written_bytes: int | None
    output_bytes: int | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> CommandResult:
        """From a *result* of the HTTP API; an `exit` event has no output."""
        with _understood():
            usage = body.get("usage") or {}
            return cls(
                outcome=Outcome(body["outcome"]),
                exit_code=_of_kind(body, "exit_code", int),
                signal=_of_kind(body, "signal", int),
                stdout_bytes=_output(body, "stdout"),
                stderr_bytes=_output(body, "stderr"),
                truncated=bool(body.get("truncated")),
                dropped_bytes=_of_kind(body, "dropped_bytes", int) or 0,
                errno=_of_kind(body, "errno", str),
                stage=_of_kind(body, "stage", str),
                cpu_seconds=usage.get("cpu_seconds"),
                peak_memory_bytes=usage.get("peak_memory_bytes"),
                disk_written_bytes=usage.get("disk_written_bytes"),
                output_bytes=usage.get("output_bytes"),
            )

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def stdout(self) -> str:
        """As text; what is not UTF-8 is a replacement mark, and exact in `stdout_bytes`."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    def check(self) -> CommandResult:
        """Itself if the exit code is 0, else CommandFailedError."""
        if self.ok:
            return self
        kind = CommandTimeoutError if self.outcome is Outcome.TIMEOUT else CommandFailedError
        last = self.stderr.strip().rpartition("\n")[2][:500]
        message = f"the command {self._words()}"
        raise kind(f"{message}: {last}" if last else message, result=self)

    def _words(self) -> str:
        match self.outcome:
            case Outcome.EXITED:
                return f"exited with {self.exit_code}"
            case Outcome.SIGNALED:
                return f"was ended by {signal_name(self.signal or 0)}"
            case Outcome.TIMEOUT:
                return "was ended when its time was over"
            case Outcome.OOM:
                return "ran out of memory"
            case Outcome.NOT_STARTED:
                return f"could not be started ({self.stage or '?'}: {self.errno or '?'})"
            case _:
                return "was lost with its sandbox"


class Chunk(NamedTuple):
    """A piece of output as it came. `text` never splits a character between two chunks."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    text: str
    offset: int


class ProbeFinding(NamedTuple):
    """One try from inside. `opens`: what a guest can do if it is open. `expected`: it is closed, or
    open for `reason`. `state` is closed, open, or unknown."""

    name: str
    group: str
    opens: str
    state: str
    expected: bool
    reason: str | None
    detail: str
    answers: dict[str, str]


class ProbeResult(NamedTuple):
    """What a guest can reach. `fit`: nothing is open that should be closed; `users`: as whom it was
    tried; `notes`: what was not tried, and why; `raw`: the whole answer."""

    fit: bool
    users: list[str]
    findings: list[ProbeFinding]
    notes: list[str]
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: dict[str, Any]) -> ProbeResult:
        fields = ProbeFinding._fields
        return cls(
            fit=body["fit"],
            users=body["users"],
            findings=[ProbeFinding(*(entry[f] for f in fields)) for entry in body["findings"]],
            notes=body["notes"],
            raw=body,
        )

    @property
    def wrong(self) -> list[ProbeFinding]:
        """Open and not meant to be, or not known."""
        return [finding for finding in self.findings if not finding.expected]


class TokenInfo(NamedTuple):
    """A token. `token`, what a caller shows, is there only in the answer that made it."""

    id: str
    name: str
    owner: str
    scopes: list[str]
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None
    token: str | None
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> TokenInfo:
        with _understood():
            return cls(
                id=str(body["id"]),
                name=str(body["name"]),
                owner=str(body["owner"]),
                scopes=[str(scope) for scope in body["scopes"]],
                created_at=float(body["created_at"]),
                expires_at=_moment(body, "expires_at"),
                last_used_at=_moment(body, "last_used_at"),
                revoked_at=_moment(body, "revoked_at"),
                token=_of_kind(body, "token", str),
                raw=dict(body),
            )


class SecretInfo(NamedTuple):
    """A secret, without its value. `kept`: "keyring" or "file". `sandboxes`: those it is bound
    to."""

    name: str
    created_at: float
    rotated_at: float | None
    kept: str
    sandboxes: list[str]
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> SecretInfo:
        with _understood():
            return cls(
                name=str(body["name"]),
                created_at=float(body["created_at"]),
                rotated_at=_moment(body, "rotated_at"),
                kept=str(body["kept"]),
                sandboxes=[str(name) for name in body["sandboxes"]],
                raw=dict(body),
            )


class ImageInfo(NamedTuple):
    """An image of the daemon's. `digest` is its manifest's, `id` its config's, `size` what its
    layers take compressed; `sandboxes`: those that were made from it."""

    names: list[str]
    digest: str
    id: str
    size: int
    created: str
    platform: str
    sandboxes: list[str]
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ImageInfo:
        with _understood():
            return cls(
                names=[str(name) for name in body["names"]],
                digest=str(body["digest"]),
                id=str(body["id"]),
                size=int(body["size"]),
                created=str(body["created"]),
                platform=str(body["platform"]),
                sandboxes=[str(name) for name in body["sandboxes"]],
                raw=dict(body),
            )


class LayerProgress(NamedTuple):
    """How far a layer is on its way: `state` is "waiting", "elsewhere", "fetching", "fetched",
    "present", "unpacking" or "ready"; `done` and `total` are bytes of it, compressed."""

    layer: str
    state: str
    done: int
    total: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> LayerProgress:
        with _understood():
            return cls(
                layer=str(body["layer"]),
                state=str(body["state"]),
                done=int(body["done"]),
                total=int(body["total"]),
            )


class PortInfo(NamedTuple):
    """A published port. `address` and `host_port`: where it is on the daemon's machine; None: as a
    preview alone. `error` says why it is not open. `token` and `preview_url` are there as far as
    the caller may know them and the daemon listens on a network."""

    port: int
    address: str | None
    host_port: int | None
    public: bool
    open: bool
    error: str | None
    preview_host: str
    preview_path: str
    preview_url: str | None
    token: str | None
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PortInfo:
        with _understood():
            return cls(
                port=int(body["port"]),
                address=_of_kind(body, "address", str),
                host_port=_of_kind(body, "host_port", int),
                public=bool(body["public"]),
                open=bool(body["open"]),
                error=_of_kind(body, "error", str),
                preview_host=str(body["preview_host"]),
                preview_path=str(body["preview_path"]),
                preview_url=_of_kind(body, "preview_url", str),
                token=_of_kind(body, "token", str),
                raw=dict(body),
            )


def _moment(body: Mapping[str, Any], key: str) -> float | None:
    value = body.get(key)
    return None if value is None else float(value)


class SandboxInfo(NamedTuple):
    """A sandbox as the daemon sees it; `raw` is the whole answer.

    `notices` are sentences about limits it should have and has not. `usage` is there once asked for
    by `connect` or `refresh`: what it used since it was started last.
    """

    id: str
    name: str | None
    owner: str
    state: str
    backend: str
    labels: dict[str, str]
    created_at: float
    expires_at: float | None
    error: str | None
    notices: list[str]
    usage: dict[str, Any] | None
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: dict[str, Any]) -> SandboxInfo:
        with _understood():
            return cls(
                id=body["id"],
                name=body.get("name"),
                owner=body.get("owner", ""),
                state=body["state"],
                backend=body.get("backend", ""),
                labels=body.get("labels") or {},
                created_at=body.get("created_at", 0.0),
                expires_at=body.get("expires_at"),
                error=body.get("error"),
                notices=body.get("notices") or [],
                usage=body.get("usage"),
                raw=body,
            )


class JobInfo(NamedTuple):
    """A job as the daemon sees it. `result` is there once it ended; of a lost one nobody knows."""

    id: str
    sandbox_id: str
    state: str
    argv: list[str]
    created_at: float
    ended_at: float | None
    result: CommandResult | None
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: dict[str, Any]) -> JobInfo:
        with _understood():
            status = body.get("result") or body.get("status")
            return cls(
                id=body["id"],
                sandbox_id=body.get("sandbox_id", ""),
                state=body["state"],
                argv=body.get("argv") or [],
                created_at=body.get("created_at", 0.0),
                ended_at=body.get("ended_at"),
                result=CommandResult.of(status) if isinstance(status, dict) else None,
                raw=body,
            )


class Entry(NamedTuple):
    """A file, as `stat` and `list` show it. Names that are not UTF-8 hold surrogates, as in `os`.

    `type` is file, dir, link, fifo, socket, char or block; `target` is where a link leads.
    """

    name: str
    type: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime: float
    target: str | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Entry:
        with _understood():
            return cls(
                name=_name(body, "name") or "",
                type=body["type"],
                size=body["size"],
                mode=body["mode"],
                uid=body["uid"],
                gid=body["gid"],
                mtime=body["mtime_ms"] / 1000,
                target=_name(body, "target"),
            )


class Change(NamedTuple):
    """Something happened to `path`, relative to what is watched ("": to that itself).

    `kind` is `ready` (the first: what happens after it is told), create, modify, remove, move (then
    `to` is where), or `overflow`: changes were lost, look for yourself.
    """

    kind: str
    path: str
    to: str | None

    @classmethod
    def of(cls, kind: str, body: Mapping[str, Any]) -> Change:
        with _understood():
            return cls(kind, _name(body, "path") or "", _name(body, "to"))


class Event(NamedTuple):
    """Something that happened to a sandbox; `kind` is such as sandbox.created, job.ended.

    `gap`: events before it were lost, so look at the state anew; then there is nothing else.
    """

    seq: int
    at: float
    kind: str
    sandbox_id: str | None
    body: dict[str, Any]

    @classmethod
    def of(cls, kind: str, body: dict[str, Any]) -> Event:
        with _understood():
            if kind == "gap":
                return cls(body["oldest"], 0.0, kind, None, body)
            return cls(body["seq"], body["at"], body["kind"], body["sandbox_id"], body["body"])


class Backend(NamedTuple):
    """An engine. `works`: what the last try showed; None if there was none. `raw`: all of it."""

    name: str
    isolation: str
    found: bool
    works: bool | None
    detail: str
    raw: dict[str, Any]

    @classmethod
    def of(cls, body: dict[str, Any]) -> Backend:
        with _understood():
            return cls(
                name=body["name"],
                isolation=body["isolation"],
                found=body["found"],
                works=body["works"],
                detail=body["detail"],
                raw=body,
            )


def written(body: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Files of an upload, and their sizes."""
    with _understood():
        for file in body["files"]:
            yield _name(file, "path") or "", int(file["size"])


def _name(body: Mapping[str, Any], key: str) -> str | None:
    if (encoded := body.get(f"{key}_b64")) is None:
        return body.get(key)
    import binascii

    return binascii.a2b_base64(encoded).decode("utf-8", "surrogateescape")


def _output(body: Mapping[str, Any], name: str) -> bytes:
    if (encoded := body.get(f"{name}_b64")) is not None:
        import binascii

        return binascii.a2b_base64(encoded)
    text: str = body.get(name) or ""
    return text.encode("utf-8", "surrogatepass")
