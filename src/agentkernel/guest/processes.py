"""Processes inside a sandbox, as seen from the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from agentkernel.errors import GuestProtocolError, InvalidInputError
from agentkernel.guest.channel import Control, End, GuestChannel, Output, Stream
from agentkernel.guest.protocol import Channel
from agentkernel.ids import new_id
from agentkernel.outcomes import Outcome as Outcome

# Of the protocol: milliseconds in 32 bits.
MAX_TIMEOUT_SECONDS: Final = 0xFFFFFFFF // 1000

# What agentd can know; `oom` and `lost` are the host's own judgement.
_REPORTED = frozenset({Outcome.EXITED, Outcome.SIGNALED, Outcome.TIMEOUT, Outcome.NOT_STARTED})


class Usage(msgspec.Struct, frozen=True):
    """What a command used, with all it started that had ended by then. None: nobody counted it.

    `peak_memory_bytes` is of the largest of its processes. `disk_written_bytes` leaves out files in
    memory. `output_bytes`: what it wrote to stdout and stderr.
    """

    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    disk_written_bytes: int | None = None
    output_bytes: int | None = None


class ExitStatus(msgspec.Struct, frozen=True):
    """The end of a process, as agentd reported it and we checked it.

    `full`: file systems of the sandbox that had no room when it ended.
    """

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    errno: str | None = None
    stage: str | None = None
    dropped_bytes: int = 0
    usage: Usage = Usage()
    full: str | None = None


class Chunk(NamedTuple):
    """Bytes a process wrote, and where they are in all that it wrote to that channel."""

    channel: Channel
    data: bytes
    offset: int


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `exec` may be told. `env` is the whole environment of the process; `output_bytes` is how
    much of each of its streams is kept for a job, the newest: agentd's own measure if None."""

    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    stdin: bool = False
    pty: tuple[int, int] | None = None
    timeout_seconds: float | None = None
    job: bool = False
    output_bytes: int | None = None


class AttachedProcess(Protocol):
    """A process that somebody is attached to, alone (GuestProcess) or with others."""

    id: str

    @property
    def pid(self) -> int | None: ...
    @property
    def status(self) -> ExitStatus | None: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def offsets(self) -> Mapping[Channel, int]: ...
    @property
    def input_bytes(self) -> int | None: ...
    async def output(self) -> Chunk | None: ...
    async def started(self) -> None: ...
    async def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def signal(self, number: int) -> None: ...
    def kill(self) -> None: ...
    def resize(self, rows: int, columns: int) -> None: ...
    def redraw(self, rows: int, columns: int) -> None: ...
    def release(self) -> None: ...


class GuestProcess:
    """A process in a sandbox. Iterate `output` to its end, then `status` is there."""

    def __init__(self, stream: Stream, id: str) -> None:
        self.id = id
        self.pid: int | None = None
        self.status: ExitStatus | None = None
        self._stream = stream
        self._given: Output | None = None
        self._input_bytes: int | None = None
        self._offsets = {Channel.STDOUT: 0, Channel.STDERR: 0}

    @classmethod
    def attach(
        cls, channel: GuestChannel, id: str, *, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> GuestProcess:
        """Takes up the output of a process that is already there. NotFoundError comes from
        `output`. Whoever was attached before is let go of."""
        return cls(channel.open("attach", id=id, out=stdout_offset, err=stderr_offset), id)

    @classmethod
    def start(
        cls,
        channel: GuestChannel,
        argv: Sequence[str],
        options: ProcessOptions,
        *,
        id: str | None = None,
    ) -> GuestProcess:
        """Asks for the process; whether it started is part of its outcome."""
        id = id or new_id()
        request: dict[str, Any] = {
            "id": id,
            "argv": [_os_bytes(word) for word in argv],
            "env": [_os_bytes(f"{key}={value}") for key, value in options.env.items()],
            "stdin": options.stdin or options.pty is not None,
            "job": options.job,
        }
        if options.output_bytes is not None:
            request["spool"] = options.output_bytes
        if options.cwd is not None:
            request["cwd"] = options.cwd
        if options.user is not None:
            request["user"] = options.user
        if options.pty is not None:
            request["pty"] = {"rows": options.pty[0], "cols": options.pty[1]}
        if options.timeout_seconds is not None:
            request["timeout_ms"] = _milliseconds(options.timeout_seconds)
        return cls(channel.open("exec", **request), id)

    @property
    def output_bytes(self) -> int:
        """All that it wrote so far, as far as it was read here."""
        return sum(self._offsets.values())

    @property
    def offsets(self) -> Mapping[Channel, int]:
        """Where the output that comes next begins."""
        return self._offsets

    @property
    def input_bytes(self) -> int | None:
        """How much of its input had come, ever, when somebody attached to it; None: nobody did."""
        return self._input_bytes

    async def output(self) -> Chunk | None:
        """The next bytes of stdout or stderr; None at the end, when `status` is set.

        Asking for more says that what was given before is out of the caller's hands: that is what
        lets the guest write on, so a caller that stops asking stops the guest.
        """
        if self._given:
            self._stream.consumed(self._given.channel, len(self._given.data))
            self._given = None
        while True:
            message = await self._stream.next()
            if isinstance(message, Output):
                self._given = message
                offset = self._offsets[message.channel]
                self._offsets[message.channel] = offset + len(message.data)
                return Chunk(message.channel, message.data, offset)
            if isinstance(message, Control):
                self._take_notice(message.body)
                continue
            self.status = exit_status(message)
            self._stream.release()
            return None

    async def started(self) -> None:
        """Returns when the process runs, or has ended, or could not be started."""
        while self.pid is None and self.status is None:
            message = await self._stream.peek()
            if not isinstance(message, Control):
                return
            await self._stream.next()
            self._take_notice(message.body)

    def _take_notice(self, body: dict[str, Any]) -> None:
        """`started`, `attached` and `dropped`: where the process is, and where its output is."""
        if isinstance(pid := body.get("pid"), int):
            self.pid = pid
        if body.get("ev") == "attached":
            self._offsets = {
                Channel.STDOUT: count(body, "out"),
                Channel.STDERR: count(body, "err"),
            }
            self._input_bytes = count(body, "in")
        elif body.get("ev") == "dropped" and body.get("ch") in (1, 2):
            self._offsets[Channel(body["ch"])] = count(body, "offset")

    async def write(self, data: bytes) -> None:
        await self._stream.send(data)

    def close_stdin(self) -> None:
        self._stream.control(eof=True)

    def signal(self, number: int) -> None:
        """To the process group of the process."""
        self._stream.control(signal=number)

    def kill(self) -> None:
        """SIGKILL to the whole tree, whatever it did to hide."""
        self._stream.control(kill=True)

    def resize(self, rows: int, columns: int) -> None:
        self._stream.control(rows=rows, cols=columns)

    def redraw(self, rows: int, columns: int) -> None:
        """The same; one that was there before may be shown anew."""
        self.resize(rows, columns)

    def release(self) -> None:
        self._stream.release()


def _os_bytes(text: str) -> bytes | str:
    """File names and arguments may be any bytes; Python carries the odd ones as surrogates."""
    return text.encode("utf-8", "surrogateescape")


def exit_status(end: End) -> ExitStatus:
    body = end.body
    try:
        outcome = Outcome(body.get("outcome", ""))
    except ValueError:
        raise GuestProtocolError("agentd reported an outcome that does not exist") from None
    if outcome not in _REPORTED:
        raise GuestProtocolError(f"agentd reported {outcome}, which it can't know")
    code, number = body.get("code"), body.get("signal")
    if outcome is Outcome.EXITED and not (type(code) is int and 0 <= code <= 255):
        raise GuestProtocolError("agentd reported an exit without a code")
    if outcome is Outcome.SIGNALED and not (type(number) is int and 1 <= number <= 64):
        raise GuestProtocolError("agentd reported a signal that does not exist")
    return ExitStatus(
        outcome=outcome,
        exit_code=code if outcome is Outcome.EXITED else None,
        signal=number if outcome is Outcome.SIGNALED else None,
        errno=_word(body.get("errno")),
        stage=_word(body.get("stage")),
        dropped_bytes=count(body, "out_dropped") + count(body, "err_dropped"),
        usage=_usage(body),
        full=_word(body.get("full")),
    )


def _usage(body: dict[str, Any]) -> Usage:
    spent, peak = _known(body, "cpu_us"), _known(body, "max_rss_kb")
    written, out, err = (_known(body, key) for key in ("written_kb", "out", "err"))
    return Usage(
        cpu_seconds=None if spent is None else spent / 1e6,
        peak_memory_bytes=None if peak is None else peak * 1024,
        disk_written_bytes=None if written is None else written * 1024,
        output_bytes=None if out is None or err is None else out + err,
    )


def _known(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    return value if type(value) is int and 0 <= value < 1 << 50 else None


def count(body: dict[str, Any], key: str) -> int:
    value = body.get(key, 0)
    return value if isinstance(value, int) and value >= 0 else 0


def _word(value: Any) -> str | None:
    return value[:64] if isinstance(value, str) else None


def _milliseconds(timeout_seconds: float) -> int:
    if timeout_seconds > MAX_TIMEOUT_SECONDS:
        raise InvalidInputError(
            "the timeout of a command is 49 days at most", hint="leave it out: then there is none"
        )
    return max(1, round(timeout_seconds * 1000))
