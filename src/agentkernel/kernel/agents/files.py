"""What is kept of a session on disk: its events, its recording, the state it leaves.

    STATE/agents/sessions/<id>/  mode 0700
      events.jsonl    one AgentEvent each line
      session.cast    asciicast v2: a header, then what its terminal showed and when
      position        how far the job's output is written, and how long both files are then
      state-N.tar     directories of the agent's own, for a session that goes on with this one;
                      state-N.file: one that is a file

Events and recording are bounded: what comes after is counted, and a mark says so. What was written
after the last `position` is cut off when a daemon comes back, and made anew from the job's output,
which agentd keeps: so no line is lost or there twice. All of it is a guest's words: data, never
followed, run or shown as it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from agentkernel.errors import NotFoundError, StateError
from agentkernel.kernel.agents.model import AgentEvent, EventKind
from agentkernel.texts import encodable

MAX_EVENTS: Final = 64 << 20
MAX_CAST: Final = 64 << 20
# Beyond the bound there is room for how it ended.
_ROOM_FOR_ENDS: Final = 4 << 20
_BULKY: Final = ("agent", "output", "input")
_PIECE: Final = 1 << 18

_encode = msgspec.json.Encoder().encode
_event = msgspec.json.Decoder(AgentEvent)


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """`out`, `err`: offsets in the job's output; all before them is written. The rest: lengths of
    the files then, and the last event's number."""

    out: int = 0
    err: int = 0
    seq: int = 0
    events_bytes: int = 0
    cast_bytes: int = 0
    began: float = 0.0
    full: bool = False
    cast_full: bool = False


class SessionFiles:
    """Of one session. Whoever writes is its recorder, alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def events(self) -> Path:
        return self.directory / "events.jsonl"

    @property
    def cast(self) -> Path:
        return self.directory / "session.cast"

    def state_tree(self, number: int) -> Path:
        """Of what is kept, the directory of that number."""
        return self.directory / f"state-{number}.tar"

    def state_file(self, number: int) -> Path:
        return self.directory / f"state-{number}.file"

    @property
    def _position(self) -> Path:
        return self.directory / "position"

    def make(self) -> None:
        """Raises StateError."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise StateError(f"{self.directory} can't be made: {exc.strerror}") from None

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def position(self) -> Position:
        try:
            return msgspec.json.decode(self._position.read_bytes(), type=Position)
        except (OSError, msgspec.DecodeError):
            return Position()

    def write_position(self, position: Position) -> None:
        fresh = self.directory / "position.new"
        with open(private(fresh, os.O_TRUNC), "wb") as file:
            file.write(_encode(position))
        fresh.rename(self._position)

    def read(self, after: int = 0, start: int = 0) -> Iterator[tuple[AgentEvent, int]]:
        """Events after a seq that are there whole, each with the place behind it. Blocking."""
        try:
            file = self.events.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(start)
            at = start
            for line in file:
                if not line.endswith(b"\n"):
                    return
                at += len(line)
                if _number(line) > after:
                    with contextlib.suppress(msgspec.DecodeError):
                        yield _event.decode(line), at

    def began(self) -> float | None:
        """When the agent was started, which is the first thing that is told of it. Blocking."""
        return next((event.at for event, _ in self.read()), None)

    def recording(self) -> Path:
        """Raises NotFoundError."""
        if not self.cast.is_file():
            raise NotFoundError(
                "nothing was recorded of this session",
                hint="a recording is of what a terminal showed; `events` has the rest",
            )
        return self.cast


class SessionWriter:
    """Appends. An event is on disk, as far as a crash of ours goes, when `tell` returns."""

    def __init__(self, files: SessionFiles, *, size: tuple[int, int] | None, title: str) -> None:
        """Takes up where the last writer was. `size`: rows and columns of a terminal whose output
        is recorded; None: nothing is recorded."""
        self._files = files
        files.make()
        known = files.position()
        self.position = known
        self._seq = known.seq
        self._began = known.began or time.time()
        self._full, self._cast_full = known.full, known.cast_full
        self._events = private(files.events, os.O_APPEND)
        os.ftruncate(self._events, known.events_bytes)
        self._events_bytes = known.events_bytes
        self._cast = -1
        self._cast_bytes = known.cast_bytes
        if size is not None:
            self._cast = private(files.cast, os.O_APPEND)
            os.ftruncate(self._cast, known.cast_bytes)
            if not known.cast_bytes:
                self._header(size, title)

    @property
    def seq(self) -> int:
        return self._seq

    def tell(self, kind: EventKind, body: dict[str, Any]) -> AgentEvent | None:
        """The event as it is now in the log; None: there is no room for it."""
        event = AgentEvent(seq=self._seq + 1, at=time.time(), kind=kind, body=body)
        try:
            line = _encode(event) + b"\n"
        except (ValueError, TypeError, OverflowError, RecursionError):
            # JSON that a guest wrote can say what no text is.
            event = msgspec.structs.replace(event, body=_clean_body(body))
            line = _encode(event) + b"\n"
        most = MAX_EVENTS if kind in _BULKY else MAX_EVENTS + _ROOM_FOR_ENDS
        if self._events_bytes + len(line) > most:
            if self._full:
                return None
            self._full = True
            return self.tell("session", {"note": "the log is full: some of what follows is not in"})
        if not self._append(self._events, line):
            return None
        self._seq, self._events_bytes = event.seq, self._events_bytes + len(line)
        return event

    def show(self, kind: str, data: str) -> None:
        """To the recording: "o", what was shown; "r", another size; "m", a mark."""
        if self._cast < 0 or self._cast_full or not data:
            return
        line = _encode([round(time.time() - self._began, 6), kind, data]) + b"\n"
        if self._cast_bytes + len(line) > MAX_CAST:
            self._cast_full = True
            mark = [round(time.time() - self._began, 6), "m", "the recording ends here: it is full"]
            line = _encode(mark) + b"\n"
        if self._append(self._cast, line):
            self._cast_bytes += len(line)

    def keep(self, out: int, err: int) -> None:
        """All output before these offsets is written."""
        self.position = Position(
            out=out,
            err=err,
            seq=self._seq,
            events_bytes=self._events_bytes,
            cast_bytes=self._cast_bytes,
            began=self._began,
            full=self._full,
            cast_full=self._cast_full,
        )
        with contextlib.suppress(OSError):  # a full disk: at worst something is there twice
            self._files.write_position(self.position)

    def close(self) -> None:
        for fd in (self._events, self._cast):
            if fd >= 0:
                os.close(fd)
        self._events = self._cast = -1

    def _header(self, size: tuple[int, int], title: str) -> None:
        rows, columns = size
        head = {
            "version": 2,
            "width": columns,
            "height": rows,
            "timestamp": int(self._began),
            "title": title[:200],
            "env": {"TERM": "xterm-256color"},
        }
        line = _encode(head) + b"\n"
        if self._append(self._cast, line):
            self._cast_bytes += len(line)

    def _append(self, fd: int, line: bytes) -> bool:
        """A whole line or none: a full disk ends no session."""
        before = self._events_bytes if fd == self._events else self._cast_bytes
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, before)
            return False
        return True


def _clean_body(body: dict[str, Any]) -> dict[str, Any]:
    try:
        cleaned: dict[str, Any] = encodable(body)
        _encode(cleaned)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {"note": "what was said here can't be written down"}
    return cleaned


def private(path: Path, flags: int) -> int:
    """A file that only this user can read, opened for writing."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _number(line: bytes) -> int:
    """Of an event's line, without reading all of it."""
    head, _, rest = line[:40].partition(b":")
    digits = rest.partition(b",")[0]
    return int(digits) if head == b'{"seq"' and digits.isdigit() else 0
