"""Control groups: memory, pids and cpu of one sandbox, on cgroup v2 and on v1 (or hybrid).

The sandbox sees its own group, read-only, at /sys/fs/cgroup: that is where a JVM looks for the
memory it may use (it asks sysinfo(2) otherwise, which knows no namespaces).

A group is made at the top of the hierarchy the process can write to, never below the group of
whoever started us, so that ending a login session or a service does not end sandboxes. Controllers
that can't be had are reported, not guessed: the caller decides whether that matters.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from agentkernel.errors import HostError
from agentkernel.security.profiles import Limits

CGROUP_ROOT = Path("/sys/fs/cgroup")
PARENT = "agentkernel"
# What a limit needs, and what programs look for beside it on v1.
LIMITING = ("memory", "pids", "cpu")
_V1_COMPANIONS = ("cpuacct", "cpuset")
_CPU_PERIOD_US = 100_000


class Hierarchy:
    """What this machine offers: for each of memory, pids, cpu the directory to make groups in."""

    def __init__(self, root: Path = CGROUP_ROOT) -> None:
        self.unified = (root / "cgroup.controllers").exists()
        self.parents: dict[str, Path] = {}
        self.reason = ""
        if not root.is_dir():
            self.reason = f"{root} is not there"
            return
        for controller in LIMITING if self.unified else LIMITING + _V1_COMPANIONS:
            base = root if self.unified else root / controller
            if self.unified and controller not in _words(base / "cgroup.controllers"):
                continue
            if (base / "cgroup.procs").exists() and os.access(base, os.W_OK):
                self.parents[controller] = base / PARENT
        if not self.parents:
            self.reason = "this user may not make control groups"

    def can(self, controller: str) -> bool:
        return controller in self.parents


class SandboxGroups:
    """The groups of one sandbox. `enforced` names the limits that hold."""

    def __init__(self, hierarchy: Hierarchy, id: str) -> None:
        self._unified = hierarchy.unified
        self.reason = hierarchy.reason
        self._groups = {name: parent / id for name, parent in hierarchy.parents.items()}
        self.enforced: set[str] = set()
        self._oom_seen = 0

    @property
    def join_files(self) -> list[str]:
        return sorted({str(path / "cgroup.procs") for path in self._groups.values()})

    @property
    def mounts(self) -> list[tuple[str, str, str]]:
        """(target, type, options) of what the guest sees of its own group."""
        if not self._groups:
            return []
        if self._unified:
            return [("/sys/fs/cgroup", "cgroup2", "")]
        return [(f"/sys/fs/cgroup/{name}", "cgroup", name) for name in self._groups]

    def create(self, limits: Limits) -> None:
        """Makes the groups and writes the limits. On an error nothing is left."""
        try:
            for controller, path in self._groups.items():
                self._make(controller, path)
            self._limit(limits)
        except OSError as exc:
            with contextlib.suppress(OSError):
                self.remove()
            raise HostError(
                f"a control group can't be made: {exc.filename}: {exc.strerror}",
                hint="run `agentkernel setup --check` to see what this machine allows",
            ) from None

    def find(self) -> None:
        """Takes over groups that an earlier owner made: what was killed before is not news."""
        for limit, controller, name in (
            ("memory", "memory", "memory.max" if self._unified else "memory.limit_in_bytes"),
            ("pids", "pids", "pids.max"),
            ("cpus", "cpu", "cpu.max" if self._unified else "cpu.cfs_quota_us"),
        ):
            group = self._groups.get(controller)
            if group and _is_limited(group / name):
                self.enforced.add(limit)
        self.was_out_of_memory()

    def _make(self, controller: str, path: Path) -> None:
        parent = path.parent
        parent.mkdir(exist_ok=True)
        if self._unified:
            for directory in (parent.parent, parent):
                if controller not in _words(directory / "cgroup.subtree_control"):
                    (directory / "cgroup.subtree_control").write_text(f"+{controller}")
        path.mkdir(exist_ok=True)
        if controller == "cpuset":
            # A v1 cpuset takes no process before it has been told what its parent has.
            for directory in (parent, path):
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if not (directory / name).read_text().strip():
                        (directory / name).write_text((directory.parent / name).read_text())

    def _limit(self, limits: Limits) -> None:
        memory, pids, cpu = (self._groups.get(name) for name in ("memory", "pids", "cpu"))
        if memory and limits.memory_bytes is not None:
            self._limit_memory(memory, limits.memory_bytes)
            self.enforced.add("memory")
        if pids and limits.pids is not None:
            (pids / "pids.max").write_text(str(limits.pids))
            self.enforced.add("pids")
        if cpu and limits.cpus is not None:
            quota = max(1000, round(limits.cpus * _CPU_PERIOD_US))
            if self._unified:
                (cpu / "cpu.max").write_text(f"{quota} {_CPU_PERIOD_US}")
            else:
                (cpu / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD_US))
                (cpu / "cpu.cfs_quota_us").write_text(str(quota))
            self.enforced.add("cpus")

    def _limit_memory(self, group: Path, limit: int) -> None:
        """Memory and swap together: swap would only turn a limit into slowness."""
        if self._unified:
            (group / "memory.max").write_text(str(limit))
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0")
            return
        (group / "memory.limit_in_bytes").write_text(str(limit))
        if (group / "memory.memsw.limit_in_bytes").exists():
            (group / "memory.memsw.limit_in_bytes").write_text(str(limit))

    def was_out_of_memory(self) -> bool:
        """True if the kernel killed for memory since the last call."""
        group = self._groups.get("memory")
        if group is None:
            return False
        try:
            text = (
                group / ("memory.events" if self._unified else "memory.oom_control")
            ).read_text()
        except OSError:
            return False
        count = next(
            (int(w[1]) for w in map(str.split, text.splitlines()) if w[0] == "oom_kill"), 0
        )
        newer, self._oom_seen = count > self._oom_seen, count
        return newer

    def remove(self) -> bool:
        """False if the kernel still holds one (its last process is on the way out): call again."""
        gone = True
        for path in set(self._groups.values()):
            try:
                path.rmdir()
            except FileNotFoundError:
                pass
            except OSError as exc:
                if exc.errno != errno.EBUSY:
                    raise
                gone = False
        return gone


def _is_limited(path: Path) -> bool:
    """v1 writes an absurdly large number, or -1, for "no limit"; v2 the word max."""
    words = _words(path)
    return bool(words) and words[0].isdigit() and int(words[0]) < 1 << 60


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
