"""How the kernel's calls look in the audit log: bounded, without contents, values or secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from agentkernel import __version__
from agentkernel.audit import redact
from agentkernel.audit.files import DIRECTORY
from agentkernel.audit.log import AuditLog, Retention
from agentkernel.audit.trail import Action, Trail
from agentkernel.guest.channel import GuestChannel, Message, Output
from agentkernel.guest.file_calls import ANSWER_SECONDS, FileCall, FilePath
from agentkernel.guest.files import GuestFiles
from agentkernel.guest.processes import ExitStatus, GuestProcess, ProcessOptions
from agentkernel.kernel.agents.model import AgentRequest
from agentkernel.kernel.building.model import BuildRequest
from agentkernel.kernel.commands import ExecResult
from agentkernel.kernel.disk_records import Pruned
from agentkernel.kernel.image_views import ImageInfo, ImageRemoved, ImagesPruned
from agentkernel.kernel.probe.findings import ProbeResult
from agentkernel.kernel.shared_jobs import Listener
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import JobRecord, SandboxRecord, VolumeRecord
from agentkernel.kernel.tokens import OWNER, NewToken
from agentkernel.kernel.updates import SandboxUpdate
from agentkernel.network.policy.request import NetworkRequest

# Looking at names and sizes is not logged, as listing sandboxes is not. Every other operation is,
# also one that is not known here.
UNLOGGED_FILE_CALLS: Final = frozenset({"file.stat", "file.list"})
_MAX_NAMES: Final = 32


def open_trail(state_dir: Path, retention: Retention | None) -> Trail:
    """Preconditions: the caller holds the state's lock."""
    log = AuditLog(state_dir / DIRECTORY, retention or Retention.from_environment())
    trail = Trail(log, _Shows())
    trail.note("kernel.start", version=__version__, after_crash=log.crashed)
    return trail


def _options(options: ProcessOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    shown: dict[str, Any] = {}
    if options.cwd is not None:
        shown["cwd"] = redact.text(options.cwd)
    if options.user is not None:
        shown["user"] = redact.text(options.user)
    if options.env:
        shown["env"] = _names(options.env)
    if options.timeout_seconds is not None:
        shown["timeout_seconds"] = options.timeout_seconds
    if options.pty is not None:
        shown["pty"] = True
    return shown


def _spec(spec: SandboxSpec) -> dict[str, Any]:
    """What was asked for, sparse as it came. Of the environment only names."""
    shown: dict[str, Any] = {}
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, str | int | float) and value != field.default:
            shown[field.name] = _plain(value)
    if spec.env:
        shown["env"] = _names(spec.env)
    if spec.network is not None:
        shown["network"] = _network(spec.network)
    if spec.secrets:
        shown["secrets"] = [redact.text(word) for word in spec.secrets[:_MAX_NAMES]]
    if spec.volumes:
        shown["volumes"] = [redact.text(word) for word in spec.volumes[:_MAX_NAMES]]
    if spec.ports:
        shown["ports"] = [redact.text(word) for word in spec.ports[:_MAX_NAMES]]
    return shown


def _network(request: NetworkRequest) -> str:
    """In words, as the command line takes them."""
    words = [*(request.presets or ()), *(f"allow {one}" for one in request.allow)]
    words += [f"deny {one}" for one in request.deny]
    words += [f"{rule.action} {rule.host}" for rule in request.rules]
    words += [f"phase {name}" for name in request.phases]
    shown = [redact.text(word) for word in words[:_MAX_NAMES]]
    return ", ".join(shown if len(words) <= _MAX_NAMES else [*shown, redact.CUT])


def _target(change: Any) -> str:
    return redact.text(change.target or (change.rule.host if change.rule else "nothing"))


def _phase(change: Any) -> dict[str, str]:
    return {} if change.phase is None else {"phase": redact.text(change.phase)}


def _names(values: Mapping[str, str]) -> list[str]:
    names = [redact.text(name)[:64] for name in list(values)[:_MAX_NAMES]]
    return names if len(values) <= _MAX_NAMES else [*names, redact.CUT]


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """`token=x` is a secret as a label, too."""
    pairs = redact.words([f"{key}={value}" for key, value in labels.items()])
    return {"labels": ", ".join(pairs)}


def _update(update: SandboxUpdate) -> dict[str, Any]:
    """What was to change; null, which takes something away, as a word."""
    given = update.given()
    labels = {key: value or "" for key, value in (given.pop("labels", None) or {}).items()}
    shown = {name: "none" if value is None else _plain(value) for name, value in given.items()}
    return shown | (_labels(labels) if labels else {})


def _build(wanted: BuildRequest) -> dict[str, Any]:
    """Of build arguments only names."""
    shown: dict[str, Any] = {}
    if wanted.tags:
        shown["tags"] = redact.text(" ".join(wanted.tags))
    if wanted.target:
        shown["target"] = redact.text(wanted.target)
    if wanted.build_args:
        shown["build_args"] = _names(wanted.build_args)
    if wanted.network is not None:
        shown["network"] = _network(wanted.network)
    return shown


def _session(asked: AgentRequest) -> dict[str, Any]:
    """Of the task only how long it is: people paste anything."""
    shown: dict[str, Any] = {"agent": redact.text(asked.agent), "mode": asked.mode}
    if asked.task is not None:
        shown["task_bytes"] = len(asked.task.encode("utf-8", "replace"))
    if asked.command:
        shown["argv"] = redact.words(asked.command)
    for name in ("model", "resume", "workdir"):
        if value := getattr(asked, name):
            shown[name] = redact.text(value)
    if asked.env:
        shown["env"] = _names(asked.env)
    if asked.mcp:
        shown["mcp"] = [server.name for server in asked.mcp]
    return shown | ({} if asked.spec is None else _spec(asked.spec))


def _plain(value: Any) -> Any:
    return redact.text(value) if isinstance(value, str) else value


# How a parameter of an audited call is shown. One that is in neither table fails a test.
_FLAT: Final = frozenset(
    {
        "name", "ttl_seconds", "idle_seconds", "on_ttl", "on_idle", "grace_seconds", "reason",
        "number", "owned", "stdout_offset", "stderr_offset", "version", "after_crash", "method",
        "path", "expires_seconds", "phase", "port", "public", "allow_risky", "quota_bytes",
        "exclusive", "force", "sandboxes", "volumes", "dry_run", "reference", "platform", "format",
        "directory", "new_name", "all", "mark_conflicts", "commit", "building", "source",
        "no_cache", "agent", "keep_sandbox", "permission", "option", "shared", "whole",
    }
)  # fmt: skip
_FORMS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "argv": lambda argv: {"argv": redact.words(argv)},
    "options": _options,
    "spec": _spec,
    "labels": _labels,
    "update": _update,
    "request": lambda request: {"network": _network(request)},
    "change": lambda change: {"rule": f"{change.action} {_target(change)}", **_phase(change)},
    "wish": lambda wish: {"host": redact.text(wish.host), "port": wish.port},
    "paths": lambda paths: {"paths": redact.text(" ".join(paths))} if paths else {},
    "names": lambda names: {"names": redact.text(" ".join(names))},
    "stdin": lambda data: {"stdin_bytes": len(data)},
    "mounts": lambda mounts: {"mounts": " ".join(mount.name for mount in mounts)} if mounts else {},
    "scopes": lambda scopes: {"scopes": redact.text(" ".join(scopes))},
    "wanted": _build,
    "template": lambda template: {"base": redact.text(template.base)},
    "asked": _session,
    "text": lambda text: {"text_bytes": len(text.encode("utf-8", "replace"))},
    "repository": lambda repository: {"source": redact.text(repository.source)},
    # Not for redact, to which token:ci is a token with its value.
    "acts_as": lambda owner: {"acts_as": owner if OWNER.fullmatch(owner) else redact.MARK},
}
SHOWN: Final = _FLAT | _FORMS.keys()
# Who and what stands in the line anyway; the rest is how an answer is to be given.
HIDDEN: Final = frozenset(
    {
        "id", "sandbox", "owner", "secrets_of", "idempotency", "progress", "output_bytes", "value",
        "pieces", "archive", "config", "taking", "steps", "context", "report", "may_name",
        "host_env",
    }
)  # fmt: skip


class _Shows:
    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in given.items():
            if value is None or value == "" or value == b"" or value == {}:
                continue
            if name in _FLAT:
                shown[name] = _plain(value)
            elif form := _FORMS.get(name):
                shown.update(form(value))
        return shown

    def outcome(self, result: Any) -> dict[str, Any]:
        if isinstance(result, ExecResult):
            sizes = {"stdout_bytes": len(result.stdout), "stderr_bytes": len(result.stderr)}
            return _status(result.status) | sizes
        if isinstance(result, GuestProcess | Listener):
            # Without a status whoever asked left before its end.
            ended = {} if result.status is None else _status(result.status)
            return ended | {"output_bytes": result.output_bytes}
        if isinstance(result, JobRecord):
            return {"job": result.id, "state": result.state}
        if isinstance(result, ImageInfo):
            return {"digest": result.digest}
        if isinstance(result, list) and result and isinstance(result[0], ImageInfo):
            return {"digests": " ".join(image.digest for image in result[:_MAX_NAMES])}
        if isinstance(result, ImageRemoved):
            return {"deleted": " ".join(result.deleted), "freed_bytes": result.freed_bytes}
        if isinstance(result, ImagesPruned):
            return {"untagged": len(result.untagged), "freed_bytes": result.freed_bytes}
        if isinstance(result, NewToken):
            return {"token": result.record.id}
        if isinstance(result, Pruned):
            return {"items": len(result.items), "bytes": result.bytes}
        if isinstance(result, ProbeResult):
            wrong = [finding.name for finding in result.findings if not finding.expected]
            shown = {"wrong": ", ".join(wrong[:_MAX_NAMES])} if wrong else {}
            return {"fit": result.fit, **shown}
        if isinstance(result, SandboxRecord | VolumeRecord):
            return {"id": result.id, "state": result.state}
        return {}


def _status(status: ExitStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {"outcome": status.outcome.value}
    for name in ("exit_code", "signal", "errno"):
        if (value := getattr(status, name)) is not None:
            shown[name] = value
    if status.dropped_bytes:
        shown["dropped_bytes"] = status.dropped_bytes
    return shown


class AuditedFiles(GuestFiles):
    """Files whose every operation is in the log: these two are all the ways to the channel."""

    def __init__(
        self,
        channel: GuestChannel,
        trail: Trail,
        record: SandboxRecord,
        *,
        user: str | None = None,
    ) -> None:
        super().__init__(channel, user=user)
        self._trail = trail
        self._record = record

    def _open(self, op: str, path: FilePath, **arguments: Any) -> FileCall:
        if op in UNLOGGED_FILE_CALLS:
            return super()._open(op, path, **arguments)
        begin = self._action(op, path, arguments)
        return _AuditedCall(begin, self._channel, op, path, self._arguments(path, arguments))

    async def _ask(
        self, op: str, path: FilePath, *, seconds: float = ANSWER_SECONDS, **arguments: Any
    ) -> dict[str, Any]:
        if op in UNLOGGED_FILE_CALLS:
            return await super()._ask(op, path, seconds=seconds, **arguments)
        action = self._action(op, path, arguments)()
        try:
            answer = await super()._ask(op, path, seconds=seconds, **arguments)
        except BaseException as exc:
            action.failed(exc)
            raise
        action.end(details={k: v for k, v in answer.items() if isinstance(v, int)})
        return answer

    def _action(
        self, op: str, path: FilePath, arguments: Mapping[str, Any]
    ) -> Callable[[], Action]:
        """Begins the action when it is called."""
        shown = {"path": redact.text(os.fspath(path))}
        for key, value in arguments.items():
            if value is not None and value is not False:
                shown[key] = _plain(os.fsdecode(value) if isinstance(value, bytes) else value)
        if "mode" in shown:
            shown["mode"] = f"{arguments['mode']:o}"
        record = self._record

        def begin() -> Action:
            action = self._trail.action(op, args=shown)
            action.begin(record.id, record.name)
            return action

        return begin


class _AuditedCall(FileCall):
    """A call whose content is counted, never kept."""

    def __init__(self, begin: Callable[[], Action], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begin = begin
        self._bytes = 0
        self._action: Action

    async def __aenter__(self) -> FileCall:
        self._action = self._begin()
        try:
            return await super().__aenter__()
        except BaseException as exc:
            self._action.failed(exc)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        size = {"bytes": self._bytes}
        try:
            await super().__aexit__(kind, error, trace)
        except BaseException as exc:
            self._action.failed(exc, size)
            raise
        if error is not None:
            self._action.failed(error, size)
        else:
            self._action.end(details=size)

    async def send(self, data: bytes) -> None:
        self._bytes += len(data)
        await super().send(data)

    async def _next(self, seconds: float | None) -> Message:
        message = await super()._next(seconds)
        if isinstance(message, Output):
            self._bytes += len(message.data)
        return message
