"""The writer: one process, one file at its end, a line on disk before anybody is told.

What must hold:
- `append` returns when the line is in the kernel's hands: killing this process loses nothing. A
  thread syncs at most `sync_seconds` later; that is what a power cut may take.
- A line is whole or not there: what a full disk took of it is cut off again.
- A file is on disk to its end before the next one has its first line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from agentkernel import faults
from agentkernel.audit import recovery
from agentkernel.audit.entries import GAP, SEQ_LEAP, Actor, Entry, Head, encode_line
from agentkernel.audit.files import file_name, first_seq, last_line, log_files
from agentkernel.errors import (
    AgentKernelError,
    InvalidInputError,
    ResourceExhaustedError,
    StateError,
    StateLockedError,
)

MIN_FILE_BYTES: Final = 64 << 10
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

log = logging.getLogger("agentkernel.audit")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept: files of this size, and of them as many as fit."""

    file_bytes: int = 16 << 20
    keep_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if self.file_bytes < MIN_FILE_BYTES or self.keep_bytes < 2 * self.file_bytes:
            raise InvalidInputError(
                f"a file of the audit log has at least {MIN_FILE_BYTES} bytes, and room for two of"
                " them is kept"
            )

    @classmethod
    def from_environment(cls) -> Retention:
        """`AGENTKERNEL_AUDIT_FILE_BYTES`, `AGENTKERNEL_AUDIT_KEEP_BYTES`."""
        chosen = {}
        for field in ("file_bytes", "keep_bytes"):
            name = f"AGENTKERNEL_AUDIT_{field.upper()}"
            if text := os.environ.get(name):
                if not (text.isascii() and text.isdigit() and len(text) < 19):
                    raise InvalidInputError(f"{name} is a number of bytes, not {text!r}")
                chosen[field] = int(text)
        return cls(**chosen)


class AuditLog:
    """The log of one directory, open for writing. All calls come from one thread."""

    def __init__(
        self,
        directory: Path,
        retention: Retention | None = None,
        *,
        sync_seconds: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises StateLockedError if another process writes it, StateError if it can't be."""
        self.directory = directory
        self.head: Head
        # The writer before this one did not end by itself.
        self.crashed = False
        self._retention = retention or Retention()
        self._sync_seconds = sync_seconds
        self._clock = clock
        self._fd = -1
        self._size = 0
        # Behind the last whole line there may be something that could not be cut off.
        self._unclean = False
        self._notes: list[tuple[str, dict[str, Any]]] = []
        self._lost = 0
        self._session = -1
        self._swap = threading.Lock()
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._failed_syncs = 0
        try:
            self._open()
        except OSError as exc:
            self._let_go()
            raise self._failure(exc) from None
        except BaseException:
            self._let_go()
            raise
        self._syncer = threading.Thread(target=self._sync_for_ever, name="agentkernel-audit-sync")
        self._syncer.daemon = True
        self._syncer.start()

    # -- lines ----------------------------------------------------------------------------------

    def append(
        self,
        action: str,
        *,
        of: int | None = None,
        actor: Actor | None = None,
        sandbox: str | None = None,
        name: str | None = None,
        args: dict[str, Any] | None = None,
        result: str | None = None,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> int:
        """Writes a line and returns its number. If it raises, there is no such line."""
        if self._lost or self._notes or self._failed_syncs:
            self._tell_troubles()
        if self._size >= self._retention.file_bytes:
            self._guarded(self._rotate)
        seq, prev = self.head
        entry = Entry(
            seq=seq + 1, time=self._clock(), prev=prev, action=action, of=of, actor=actor,
            sandbox=sandbox, name=name, args=args or {}, result=result, code=code,
            details=details or {},
        )  # fmt: skip
        self._write(entry)
        return entry.seq

    def lost(self) -> None:
        """Says that something happened whose line could not be written: the next one tells."""
        self._lost += 1
        if self._lost == 1:
            log.error("the audit log can't be written; what happens meanwhile is only counted")

    def _note(self, action: str, *, seq: int | None = None, **details: Any) -> None:
        """A line of the log about itself."""
        number = self.head.seq + 1 if seq is None else seq
        self._write(
            Entry(seq=number, time=self._clock(), prev=self.head.hash, action=action,
                  details=details)
        )  # fmt: skip

    def _tell_troubles(self) -> None:
        while self._notes:
            action, details = self._notes[0]
            self._note(action, **details)
            self._notes.pop(0)
        if self._lost:
            self._note("log.lost", lines=self._lost, reason="they could not be written")
            self._lost = 0
        if count := self._failed_syncs:
            self._note("log.unsynced", syncs=count)
            self._failed_syncs -= count

    def _write(self, entry: Entry) -> None:
        line, digest = encode_line(entry)
        try:
            if self._unclean:
                os.ftruncate(self._fd, self._size)
                self._unclean = False
            faults.point("audit.append")
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            self._unclean = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
                self._unclean = False
            raise self._failure(exc) from None
        self._size += written
        self.head = Head(entry.seq, digest)
        if not self._dirty.is_set():
            self._dirty.set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as exc:
            raise self._failure(exc) from None

    def _failure(self, error: OSError) -> AgentKernelError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return ResourceExhaustedError(
                f"the audit log can't be written: {self.directory}: {os.strerror(error.errno)}",
                hint="make room on the disk; nothing is done that can't be logged",
            )
        return StateError(f"the audit log can't be written: {self.directory}: {error.strerror}")

    # -- files ----------------------------------------------------------------------------------

    def _open(self) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._session = os.open(
            self.directory / "session", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(self._session, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateLockedError(
                f"another process writes the audit log in {self.directory}"
            ) from None
        found = recovery.recover(self.directory, self._session)
        self.head = found.head
        if found.file is None:
            self._begin_file(found.next_name, found.damage)
        else:
            self._fd = os.open(found.file, _FLAGS, 0o600)
            self._size = found.size
        if found.torn is not None:
            self._note("log.repaired", **found.torn)
        if found.machine_stopped:
            self._note(
                GAP, seq=self.head.seq + 1 + SEQ_LEAP, reason="the machine stopped",
                window_seconds=self._sync_seconds,
            )  # fmt: skip
        os.fsync(self._fd)
        recovery.begin_session(self._session)
        self._sync_directory()
        self.crashed = found.crashed
        self._prune()

    def _begin_file(self, name: str | None = None, damage: dict[str, Any] | None = None) -> None:
        """A file is named by its first line, which is linked to the last one of the file before."""
        path = self.directory / (name or file_name(self.head.seq + 1))
        fd = os.open(path, _FLAGS | os.O_EXCL, 0o600)
        before = self._fd, self._size
        with self._swap:
            self._fd, self._size = fd, 0
        try:
            # Damage that is left as it stands takes its numbers with it.
            seq = first_seq(path.name)
            self._note("log.file", seq=seq, format=1, **({"damaged": damage} if damage else {}))
        except BaseException:
            with self._swap:
                self._fd, self._size = before
            os.close(fd)
            path.unlink()
            raise
        if before[0] >= 0:
            os.close(before[0])

    def _rotate(self) -> None:
        with self._swap:  # the other thread may be syncing it
            os.fsync(self._fd)
        self._begin_file()
        self._sync_directory()
        self._prune()

    def _prune(self) -> None:
        """Removes the oldest files. That is a line before it is done: what is gone by it can be
        told from what somebody took away."""
        files = log_files(self.directory)
        # A file is as long as its size and the rest of a line.
        most = self._retention.file_bytes
        sizes = [min(most, path.stat().st_size) for path in files]
        room = self._retention.keep_bytes - most
        goes = 0
        while goes < len(files) - 1 and sum(sizes[goes:-1]) > room:
            goes += 1
        if not goes:
            return
        kept_from = first_seq(files[goes].name)
        last = last_line(files[goes - 1])[0]
        self._note(
            "log.pruned", files=goes, kept_from=kept_from,
            last_seq=last.seq if last else None, last_hash=last.hash if last else None,
        )  # fmt: skip
        os.fsync(self._fd)
        for path in files[:goes]:
            path.unlink()

    def _sync_directory(self) -> None:
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # -- syncing and the end --------------------------------------------------------------------

    def _sync_for_ever(self) -> None:
        while True:
            self._dirty.wait()
            self._closing.wait(self._sync_seconds)
            if self._closing.is_set():
                return
            self._dirty.clear()
            try:
                with self._swap:
                    fd = os.dup(self._fd)
                try:
                    os.fdatasync(fd)
                finally:
                    os.close(fd)
            except OSError as exc:
                self._failed_syncs += 1
                log.error("the audit log could not be synced: %s", exc.strerror)

    def close(self) -> None:
        """Everything is on disk afterwards. Idempotent."""
        if self._fd < 0:
            return
        self._closing.set()
        self._dirty.set()
        self._syncer.join()
        try:
            os.fsync(self._fd)
            recovery.end_session(self._session)
        except OSError as exc:
            log.error("the audit log could not be synced: %s", exc.strerror)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for fd in (self._fd, self._session):
            if fd >= 0:
                os.close(fd)
        self._fd = self._session = -1
