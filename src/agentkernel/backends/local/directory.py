"""The directory a sandbox has on the host, from its first moment to its last.

    runs/<id>/        a sandbox that lives as long as its owner's process
    sandboxes/<id>/   one that is kept: it outlives its owner, and its files outlive its processes
        lock     (runs) held by the owner; free: the owner is gone
        s        agentd's socket, while it runs
        process  its PID 1 on the host: boot id, pid, start time; before it does anything
        runtime  what is needed to find the running sandbox again: process, token, ids, root
        groups   paths of its control groups, which may not be where new ones are made; there from
                 before the first thing that has to be undone until after the last
        layers   host paths of the layers it stands on, a line each
        engine/  an OCI runtime's own state, and agentd's socket where the runtime lets none in
        applied  what of its workspace was applied to the host, and when
        base/    how its workspace was on the host when it was made, as far as that is not git's
        upper/   the guest's files, unless they are in memory
        tree/    its workspace, if that is a git branch which is checked out nowhere else
        view/    what it has changed in its workspace, while that is looked at from inside
        hidden/  the layer that hides what looks like a secret in its workspace
        image    or a file system that holds them, where they have a bound

A directory below `runs` gets its final name only once its lock is held, so one that can be locked
has been abandoned and may be removed. Kept ones are never judged by a lock: whoever owns the state
directory knows them by name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from agentkernel.backends.base import EffectiveLine
from agentkernel.backends.local.idmaps import IdMaps
from agentkernel.backends.local.shortages import host_error
from agentkernel.images.model import RootFilesystem
from agentkernel.workspaces.model import UPPER_INDEX

_UNFINISHED = ".new-"
_RUNNING_FILES = ("s", "process", "runtime", ".runtime", "groups")
_OWN_FILES = ("image", ".image", "layers", "applied", "applied.new", "lock")


class Process(msgspec.Struct, frozen=True):
    """A process of the host, told apart from another that has its number later."""

    pid: int
    start: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, _state_and_start(pid)[1], _boot_id())

    def lives(self) -> bool:
        """False too for one that has ended and was not waited for yet."""
        try:
            state, start = _state_and_start(self.pid)
            return self.boot == _boot_id() and self.start == start and state not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A running sandbox, as written down for whoever comes after its owner. `can_enter`: a network
    namespace that is entered through its process is the guest's, too."""

    process: Process
    token: bytes
    maps: IdMaps
    root: RootFilesystem
    effective: tuple[EffectiveLine, ...]
    can_enter: bool = True


class SandboxDirectory:
    """One sandbox's directory."""

    def __init__(self, path: Path, lock: int = -1) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, parent: Path, id: str, *, locked: bool) -> SandboxDirectory:
        """A new one. Raises HostError or ResourceExhaustedError where none can be made."""
        path, temporary, lock = parent / id, parent / f"{_UNFINISHED}{id}", -1
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if locked:
                temporary.mkdir(mode=0o700)
                lock = os.open(temporary / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                temporary.rename(path)
            else:
                path.mkdir(mode=0o700)
        except OSError as exc:
            if locked:
                cls(temporary, lock).remove()
            hint = "set AGENTKERNEL_STATE_DIR to a directory of yours"
            raise host_error(exc, "writing the state directory", hint) from None
        return cls(path, lock)

    @property
    def upper(self) -> Path:
        return self.path / "upper"

    @property
    def image(self) -> Path:
        return self.path / "image"

    @property
    def root_upper(self) -> Path:
        """The changes of the image itself, where they are not in memory."""
        return self.upper / "0" / "u"

    @property
    def workspace_upper(self) -> Path:
        """The changes of a copy-on-write workspace, where they are not in memory."""
        return self.upper / str(UPPER_INDEX) / "u"

    @property
    def hidden(self) -> Path:
        return self.path / "hidden"

    @property
    def base(self) -> Path:
        return self.path / "base"

    @property
    def view(self) -> Path:
        return self.path / "view"

    @property
    def tree(self) -> Path:
        return self.path / "tree"

    def remove_base(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.base)

    def make_upper(self) -> Path:
        self.upper.mkdir(mode=0o755, exist_ok=True)
        return self.upper

    @property
    def engine(self) -> Path:
        return self.path / "engine"

    def make_engine(self) -> Path:
        for path in (self.engine, self.engine / "state", self.engine / "socket"):
            path.mkdir(mode=0o700)
        # agentd, whatever its id, makes its socket there, and then the directory goes.
        (self.engine / "socket").chmod(0o777)
        return self.engine

    def record_layers(self, paths: Iterable[str]) -> None:
        """Before they are used: whoever prunes layers keeps these."""
        (self.path / "layers").write_text("\n".join(paths), errors="surrogateescape")

    def record_groups(self, paths: dict[str, str]) -> None:
        """Before they are made: whoever comes next can find and remove them."""
        (self.path / "groups").write_bytes(msgspec.json.encode(paths))

    def groups(self) -> dict[str, str] | None:
        try:
            return msgspec.json.decode((self.path / "groups").read_bytes(), type=dict[str, str])
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def open_record(self) -> int:
        """A descriptor for the launcher to append the pid and start time of PID 1 to."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        boot = f"{_boot_id()} ".encode("ascii")
        fd = os.open(self.path / "process", flags, 0o600)
        try:
            os.write(fd, boot)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def process(self) -> int | None:
        """The pid of a PID 1 that was launched here, if that very process still lives. Raises
        OSError where that can't be found out: nobody may take it for dead then."""
        try:
            boot, pid, start = (self.path / "process").read_text(encoding="ascii").split()
            return int(pid) if Process(int(pid), start, boot).lives() else None
        except (FileNotFoundError, ValueError):
            return None

    def record_runtime(self, runtime: Runtime) -> None:
        temporary = self.path / ".runtime"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(runtime))
        temporary.rename(self.path / "runtime")

    def runtime(self) -> Runtime | None:
        """What was running here, if that very process still lives. Raises OSError as above."""
        try:
            found = msgspec.json.decode((self.path / "runtime").read_bytes(), type=Runtime)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found if found.process.lives() else None

    def is_marked(self) -> bool:
        """Something of it may be there besides its files."""
        return (self.path / "groups").exists()

    def forget_runtime(self) -> None:
        """Last `groups`, the mark that there may be something to undo."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.engine)
        for name in _RUNNING_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path / name)

    def remove(self) -> None:
        """Removes what is ours, last the lock. The upper, which a guest shaped, must be gone."""
        self.forget_runtime()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.hidden)
        self.remove_base()
        for tree in (self.tree, self.path / "tree.new", self.view):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(tree)
        for name in _OWN_FILES:
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


def layers_in_use(*parents: Path) -> set[str]:
    """What the sandboxes that exist stand on."""
    found: set[str] = set()
    for parent in parents:
        for path in parent.glob("*/layers"):
            with contextlib.suppress(FileNotFoundError):
                found.update(path.read_text(errors="surrogateescape").split("\n"))
    return found


def _state_and_start(pid: int) -> tuple[str, str]:
    """Fields 3 and 22 of /proc/PID/stat; the name in field 2 may hold anything, so count from its
    end."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
        return fields[0], fields[19]


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
