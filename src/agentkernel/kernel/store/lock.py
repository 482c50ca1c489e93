"""One owner of a state directory at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from agentkernel.errors import HostError, StateLockedError


class StateLock:
    """An flock on `daemon.lock`, with the holder's pid in it for people to read.

    The kernel frees it when the holder dies, however it dies. The file stays: removing a lock
    file lets two processes hold two files of one name.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "daemon.lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Takes the lock at once or raises StateLockedError. Taking it twice is refused too."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise HostError(
                f"the state directory can't be locked: {self.path}: {exc.strerror}",
                hint="make it writable, or set AGENTKERNEL_STATE_DIR to a directory of yours",
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid(fd)
            os.close(fd)
            holder = "another process" if pid is None else f"process {pid}"
            raise StateLockedError(
                f"{holder} owns the state in {self.path.parent}",
                hint="talk to it through its socket, end it, or set AGENTKERNEL_STATE_DIR to"
                " another directory",
                pid=pid,
            ) from None
        except OSError as exc:
            os.close(fd)
            raise HostError(
                f"the state directory can't be locked: {self.path}: {exc.strerror}",
                hint="set AGENTKERNEL_STATE_DIR to a directory on a local disk",
            ) from None
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            # A full disk takes the pid out of a message, not the lock from its holder.
            pass
        self._fd = fd

    def release(self) -> None:
        """Idempotent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.ftruncate(fd, 0)
            finally:
                os.close(fd)

    def __enter__(self) -> StateLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
