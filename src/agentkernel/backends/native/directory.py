"""The directory a sandbox has on the host, from its first moment to its last.

    sandboxes/<id>/lock     held by whoever owns the sandbox; free: the owner is gone
                   s        agentd's socket
                   pid      its process on the host: pid, start time, boot id
                   layers   host paths of the layers it stands on, a line each
                   upper/   the guest's files, unless they are in memory

A directory gets its final name only once its lock is held, so one that can be locked has been
abandoned and may be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentkernel.errors import HostError

_UNFINISHED = ".new-"


class SandboxDirectory:
    """One sandbox's directory, locked."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, parent: Path, id: str) -> SandboxDirectory:
        temporary = parent / f"{_UNFINISHED}{id}"
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.mkdir(mode=0o700)
            lock = os.open(temporary / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise HostError(
                f"the state directory can't be written: {exc.filename}: {exc.strerror}",
                hint="set AGENTKERNEL_STATE_DIR to a directory of yours",
            ) from None
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = parent / id
        temporary.rename(path)
        return cls(path, lock)

    @property
    def upper(self) -> Path:
        return self.path / "upper"

    def make_upper(self) -> Path:
        self.upper.mkdir(mode=0o755)
        return self.upper

    def record_layers(self, paths: Iterable[str]) -> None:
        """Before they are used: whoever prunes layers keeps these."""
        (self.path / "layers").write_text("\n".join(paths), errors="surrogateescape")

    def record_process(self, pid: int) -> None:
        (self.path / "pid").write_text(f"{pid} {_start_time(pid)} {_boot_id()}", encoding="ascii")

    def recorded_process(self) -> int | None:
        """The sandbox's process, if that very one still lives: a pid alone may be another's."""
        try:
            pid, start, boot = (self.path / "pid").read_text(encoding="ascii").split()
            same = boot == _boot_id() and start == _start_time(int(pid))
            return int(pid) if same else None
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Removes what is ours, last the lock. The upper, which a guest shaped, must be gone."""
        for name in ("s", "pid", "layers", "lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path / name)
        with contextlib.suppress(FileNotFoundError):
            self.path.rmdir()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def abandoned(parent: Path) -> Iterator[SandboxDirectory]:
    """Directories whose owner is gone, locked by us now: remove them."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        path = parent / name
        try:
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Killed between mkdir and the lock, or being made this moment: an empty one is
            # harmless, and rmdir fails on one that has just become more.
            if name.startswith(_UNFINISHED):
                with contextlib.suppress(OSError):
                    path.rmdir()
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        yield SandboxDirectory(path, lock)


def layers_in_use(parent: Path) -> set[str]:
    """What the sandboxes that exist stand on."""
    found: set[str] = set()
    for path in parent.glob("*/layers"):
        with contextlib.suppress(FileNotFoundError):
            found.update(path.read_text(errors="surrogateescape").split("\n"))
    return found


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; the name in field 2 may hold anything, so count from its end."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
