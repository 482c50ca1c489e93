"""Where control groups of sandboxes can be made, for each controller.

    v1, hybrid      CONTROLLER/agentkernel/ID, if that hierarchy's top can be written to
    v2, root        agentkernel/ID at the top of the mount, which in a container is its own group
    v2, a user      SCOPE/agentkernel/ID, where SCOPE is a group that systemd gave to this user
                    (`delegation` puts the daemon into one)

Never in the group of whoever started us, so that ending a login session or a service does not end
sandboxes; in a scope of our own they stay when the daemon ends, because a scope lives as long as
any process in it.

On v2 a group with processes of its own can't hand controllers to groups below it (the root group
excepted). So what is in SCOPE, or at the top in a container, moves to the leaf `host` beside ours:
only where it is ours to move.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PARENT = "agentkernel"
LEAF = "host"
LIMITING = ("memory", "pids", "cpu")
# What programs look for beside the limits on v1, and what counts the time.
_V1_COMPANIONS = ("cpuacct", "cpuset")
_RUN_AS_ROOT = "run as root"
_DELEGATE = (
    "let systemd give this user its controllers: `systemctl edit user@.service` with "
    "`[Service]` and `Delegate=cpu memory pids`, then log in again"
)


class Hierarchy:
    """What this machine offers. `own`: this process's group on v2, from the top of the mount."""

    def __init__(self, root: Path = CGROUP_ROOT, own: str | None = None) -> None:
        self.unified = (root / "cgroup.controllers").exists()
        self.base: Path | None = None
        self._root = root
        self._own = (own_group() if own is None else own) if self.unified else ""
        self._reason = ""
        self._remedy = _RUN_AS_ROOT
        self._parents: dict[str, Path] = {}
        self._is_prepared = False
        if not root.is_dir():
            self._reason, self._remedy = f"{root} is not there", "mount the control groups there"
        elif self.unified:
            self._find_unified()
        else:
            self._find_by_controller()

    @property
    def parents(self) -> dict[str, Path]:
        """For each controller the directory that groups are made in; it exists. Prepared at the
        first look: what fails then is a `reason`, as if it had never been there."""
        if self._parents and not self._is_prepared:
            self._is_prepared = True
            try:
                self._prepare()
            except OSError as exc:
                self._parents = {}
                self._reason = f"control groups can't be made: {exc.filename}: {exc.strerror}"
        return self._parents

    def why_not(self, controller: str) -> tuple[str, str]:
        """Why a controller can't be had and what would mend it; nothing if it can."""
        if controller in self.parents:
            return "", ""
        if self._reason:
            return self._reason, self._remedy
        if self.unified and self.base not in (None, self._root):
            return f"the {controller} controller is not delegated to this user", _DELEGATE
        return f"there is no {controller} controller", "switch it on in the kernel"

    def _find_by_controller(self) -> None:
        for controller in LIMITING + _V1_COMPANIONS:
            if is_writable(self._root / controller):
                self._parents[controller] = self._root / controller / PARENT
        if not self._parents:
            self._reason = "this user may not make control groups"

    def _find_unified(self) -> None:
        if is_writable(self._root):
            self.base = self._root
        else:
            self.base = self._scope()
        if self.base is None and self._own == "/":
            self._reason = f"{self._root} is read-only, as in a container"
            self._remedy = "start the container with a writable one, for example --privileged"
            return
        if self.base is None:
            self._reason = "the control group of this session is not this user's to divide"
            self._remedy = (
                "run as root, or use the daemon where systemd runs for this user "
                "(`systemctl --user status` works)"
            )
            return
        offered = _words(self.base / "cgroup.controllers")
        self._parents = {name: self.base / PARENT for name in LIMITING if name in offered}

    def _scope(self) -> Path | None:
        """Our own group, if it is to divide: a unit of ours, or one with nobody else in it."""
        own = self._root / self._own.strip("/")
        group = own.parent if own.name == LEAF else own
        if group == self._root or not is_writable(group):
            return None
        if is_ours(group.name) or own.name == LEAF:
            return group
        return group if _words(group / "cgroup.procs") == [str(os.getpid())] else None

    def _prepare(self) -> None:
        for parent in self._parents.values():
            if not self.unified:
                parent.mkdir(exist_ok=True)
                continue
            parent.mkdir(exist_ok=True)
            missing = self._missing(parent.parent)
            if missing:
                try:
                    _enable(parent.parent, missing)
                except OSError as exc:
                    if exc.errno != errno.EBUSY:
                        raise
                    _make_room(parent.parent)
                    _enable(parent.parent, missing)
            if missing := self._missing(parent):
                _enable(parent, missing)
            return  # one parent for all of them

    def _missing(self, group: Path) -> list[str]:
        present = _words(group / "cgroup.subtree_control")
        return [name for name in self._parents if name not in present]


def own_group() -> str:
    """This process's group on v2; "/" if it is at the top, or there is no v2."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")


def is_ours(unit: str) -> bool:
    return unit.startswith("agentkernel") and unit.endswith((".scope", ".service"))


def is_writable(group: Path) -> bool:
    return (group / "cgroup.procs").exists() and os.access(group, os.W_OK)


def _enable(group: Path, controllers: list[str]) -> None:
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def _make_room(group: Path) -> None:
    """Moves every process of a group into a leaf of it. What forks meanwhile is met again."""
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    for _ in range(100):
        pids = _words(group / "cgroup.procs")
        if not pids:
            return
        for pid in pids:
            try:
                _move(pid, leaf)
            except OSError as exc:
                if exc.errno != errno.ESRCH:
                    raise


def _move(pid: str, group: Path) -> None:
    (group / "cgroup.procs").write_text(pid)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
