"""What a writer finds at its start: the end of the chain, and what the last one left undone.

Only what a crash explains is mended: a last line without its newline. Anything else stays as it
stands, for `verify` to show, and the chain goes on in a file of its own.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.audit.entries import START, Head
from agentkernel.audit.files import file_name, first_seq, last_line, log_files


class Found(msgspec.Struct, kw_only=True):
    """`file`: where to go on, from `size`; None: in a new one, called `next_name`."""

    head: Head = START
    file: Path | None = None
    size: int = 0
    next_name: str | None = None
    torn: dict[str, Any] | None = None
    damage: dict[str, Any] | None = None
    crashed: bool = False
    machine_stopped: bool = False


def recover(directory: Path, session: int) -> Found:
    """Preconditions: the caller holds the lock on `session`."""
    boot = os.pread(session, 64, 0).decode("ascii", "replace").strip()
    found = Found(crashed=bool(boot), machine_stopped=bool(boot) and boot != _boot_id())
    files = log_files(directory)
    if files:
        _find_end(files, found)
    found.machine_stopped &= bool(files)
    return found


def _find_end(files: list[Path], found: Found) -> None:
    path = files[-1]
    head, end, rest = last_line(path)
    if b"\n" not in rest:
        if rest:
            found.torn = {
                "file": path.name,
                "bytes": len(rest),
                "sha256": hashlib.sha256(rest).hexdigest(),
            }
            os.truncate(path, end)
        if head is not None:
            found.head, found.file, found.size = head, path, end
            return
        # It was made, and its first line never got there.
        path.unlink()
        if len(files) > 1:
            _find_end(files[:-1], found)
        return
    # Lines that are whole and wrong: no crash writes them.
    size = path.stat().st_size
    found.damage = {"file": path.name, "from": end, "bytes": size - end}
    for older in reversed(files):
        if head := last_line(older)[0]:
            found.head = head
            break
    found.next_name = file_name(max(found.head.seq, first_seq(path.name)) + 1)


def begin_session(session: int) -> None:
    """From here on the next writer knows that we did not end."""
    os.ftruncate(session, 0)
    os.pwrite(session, _boot_id().encode() + b"\n", 0)
    os.fsync(session)


def end_session(session: int) -> None:
    os.ftruncate(session, 0)
    os.fsync(session)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return "unknown"
