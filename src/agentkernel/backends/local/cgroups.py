"""Control groups: memory, pids and cpu of one sandbox, on cgroup v2 and on v1 (or hybrid).

The sandbox sees its own group, read-only, at /sys/fs/cgroup: that is where a JVM looks for the
memory it may use (it asks sysinfo(2) otherwise, which knows no namespaces).

Where groups are made is `hierarchy`'s to know. Controllers that can't be had are reported, not
guessed: the caller decides whether that matters.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from pathlib import Path

from agentkernel.backends.base import SandboxUsage
from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.backends.local.shortages import host_error
from agentkernel.security.profiles import Limits

COUNTED_BY = "control group"
_CPU_PERIOD_US = 100_000
_CONTROLLERS = {"memory": "memory", "pids": "pids", "cpus": "cpu"}


class SandboxGroups:
    """The groups of one sandbox. `enforced` names the limits that hold.

    `paths`: where an earlier owner made them, which may be another place than today's.
    """

    def __init__(
        self, hierarchy: Hierarchy, id: str, paths: Mapping[str, str] | None = None
    ) -> None:
        self._hierarchy = hierarchy
        self._id = id
        self._unified = hierarchy.unified
        self._groups = {name: Path(path) for name, path in (paths or {}).items()}
        if paths is None:
            self._groups = {name: parent / id for name, parent in hierarchy.parents.items()}
        self.enforced: set[str] = set()
        self._oom_seen = 0

    @property
    def paths(self) -> dict[str, str]:
        return {name: str(path) for name, path in self._groups.items()}

    @property
    def join_files(self) -> list[str]:
        """For the launcher to write its own "0" to.

        In version 1 `tasks`: a thread that moves itself alone waits for nobody, where moving a
        process waits for the whole machine to pass a grace period (14 ms seen). The launcher has
        one thread only.
        """
        name = "cgroup.procs" if self._unified else "tasks"
        return sorted({str(path / name) for path in self._groups.values()})

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
                path.mkdir(exist_ok=True)
                if controller == "cpuset":
                    _fill_cpuset(path)
            self._limit(limits)
        except OSError as exc:
            with contextlib.suppress(OSError):
                self.remove()
            hint = "run `agentkernel setup --check` to see what this machine allows"
            raise host_error(exc, "making a control group", hint) from None

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

    def why_not(self, limit: str) -> tuple[str, str]:
        """Why a limit does not hold and what would mend it; nothing if it does."""
        if limit in self.enforced:
            return "", ""
        return self._hierarchy.why_not(_CONTROLLERS[limit])

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

    # -- what happened -----------------------------------------------------------------------------

    def was_out_of_memory(self) -> bool:
        """True if the kernel killed for memory since the last call."""
        count = self.hits().get("memory", 0)
        newer, self._oom_seen = count > self._oom_seen, count
        return newer

    def hits(self) -> dict[str, int]:
        """How often a limit was hit, since the groups were made: `memory` by a kill, `pids` by a
        fork that failed."""
        kills = self._counters("memory", "memory.events" if self._unified else "memory.oom_control")
        forks = self._counters("pids", "pids.events")
        return {"memory": kills.get("oom_kill", 0), "pids": forks.get("max", 0)}

    def usage(self) -> SandboxUsage | None:
        """What the sandbox has used so far; None without groups that count it."""
        if not self._groups or not any(path.exists() for path in self._groups.values()):
            return None
        cpu = self._counters("cpu", "cpu.stat")
        if self._unified:
            any_group = next(iter(self._groups.values()))
            spent = _counters(any_group / "cpu.stat").get("usage_usec")
            cpu_seconds = None if spent is None else spent / 1e6
            throttled = cpu.get("throttled_usec")
            throttled_seconds = None if throttled is None else throttled / 1e6
            names = ("memory.current", "memory.peak")
        else:
            spent = self._number("cpuacct", "cpuacct.usage")
            cpu_seconds = None if spent is None else spent / 1e9
            throttled = cpu.get("throttled_time")
            throttled_seconds = None if throttled is None else throttled / 1e9
            names = ("memory.usage_in_bytes", "memory.max_usage_in_bytes")
        return SandboxUsage(
            counted_by=COUNTED_BY,
            cpu_seconds=cpu_seconds,
            throttled_seconds=throttled_seconds,
            memory_bytes=self._number("memory", names[0]),
            peak_memory_bytes=self._number("memory", names[1]),
            processes=self._number("pids", "pids.current"),
        )

    def _number(self, controller: str, name: str) -> int | None:
        group = self._groups.get(controller)
        words = _words(group / name) if group else []
        return int(words[0]) if words and words[0].isdigit() else None

    def _counters(self, controller: str, name: str) -> dict[str, int]:
        group = self._groups.get(controller)
        return _counters(group / name) if group else {}

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


def _fill_cpuset(path: Path) -> None:
    """A v1 cpuset takes no process before it has been told what its parent has."""
    for directory in (path.parent, path):
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not (directory / name).read_text().strip():
                (directory / name).write_text((directory.parent / name).read_text())


def _is_limited(path: Path) -> bool:
    """v1 writes an absurdly large number, or -1, for "no limit"; v2 the word max."""
    words = _words(path)
    return bool(words) and words[0].isdigit() and int(words[0]) < 1 << 60


def _counters(path: Path) -> dict[str, int]:
    """Lines of `name number`."""
    words = _words(path)
    return {
        name: int(value)
        for name, value in zip(words[::2], words[1::2], strict=False)
        if value.isdigit()
    }


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
