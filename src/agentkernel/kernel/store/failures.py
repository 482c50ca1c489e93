"""What SQLite's errors mean to a caller: no `sqlite3` error leaves the store."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from agentkernel.errors import (
    AgentKernelError,
    ConflictError,
    InvalidInputError,
    ResourceExhaustedError,
    StateCorruptError,
    StateError,
)

# Result codes of SQLite, without the extension in the upper bits.
_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _CORRUPT, _FULL = 5, 6, 7, 8, 10, 11, 13
_CANTOPEN, _TOOBIG, _CONSTRAINT, _NOTADB = 14, 18, 19, 26
# On a disk with less room than this, an input/output error is taken for a full disk.
_NEARLY_FULL_BYTES = 256 << 10


def corrupt(path: Path, why: str) -> StateCorruptError:
    return StateCorruptError(
        f"the state in {path} is damaged: {why}",
        hint=f"put back a copy such as {path}.before-N if there is one, or move {path} and"
        f" {path.name}-wal away to start empty, without the sandboxes that are known now",
        path=str(path),
    )


def translate(error: Exception, path: Path) -> Exception:
    """The error to raise instead of `error`; what is nobody's fault but ours stays itself."""
    if isinstance(error, AgentKernelError):
        return error
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return InvalidInputError(f"can't be stored: {error}")
    if isinstance(error, MemoryError):
        return ResourceExhaustedError("no memory is left for the state")
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _full(path)
        return StateError(f"the state in {path} can't be used: {error.strerror or error}")
    if not isinstance(error, sqlite3.Error):
        return error
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if code == _FULL or (code in (_IOERR, _CANTOPEN) and _room(path) < _NEARLY_FULL_BYTES):
        return _full(path)
    if code == _NOMEM:
        return ResourceExhaustedError("no memory is left for the state")
    if code in (_CORRUPT, _NOTADB):
        return corrupt(path, str(error))
    if code == _CONSTRAINT:
        return ConflictError(f"the state does not allow it: {error}")
    if code == _TOOBIG:
        return InvalidInputError("too large to be stored")
    if code in (_BUSY, _LOCKED):
        hint = "end the program that holds it open, such as a sqlite3 shell"
    elif code in (_READONLY, _CANTOPEN):
        hint = "make the directory and its files writable for this user"
    elif code == _IOERR:
        hint = "look at the disk, at quotas and at the limit on file sizes"
    else:
        return AgentKernelError(f"a statement of the store failed: {error} ({name})")
    return StateError(f"the state in {path} can't be used: {error} ({name})", hint=hint)


def _full(path: Path) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the disk that holds {path} is full",
        hint="make room on it; nothing that was acknowledged is lost",
    )


def _room(path: Path) -> int:
    try:
        info = os.statvfs(path.parent)
    except OSError:
        return _NEARLY_FULL_BYTES
    return info.f_bavail * info.f_frsize
