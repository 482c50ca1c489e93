"""The launch plan: one MessagePack map that tells the C launcher what to make.

All knowledge is on this side; the launcher only carries out. `docs/reference/launch-plan.md` has
the keys. Order matters in `ops`: a mount is made on what the ones before it have made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentkernel.backends.native import procfs
from agentkernel.backends.native.cgroups import SandboxGroups
from agentkernel.backends.native.idmaps import IdMaps, Lines
from agentkernel.images.model import RootFilesystem
from agentkernel.security.capabilities import to_mask
from agentkernel.security.profiles import Limits

# What agentd itself needs to run processes as others and to end them; and CAP_LEASE, which no
# process gets, so that agentd's set is never a subset of a process's.
AGENT_CAPABILITIES = frozenset({"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_LEASE"})
TTY_GROUP = 5
_UNBOUNDED_UPPER = 1 << 50


@dataclass
class LaunchPlan:
    """Collects sources and operations; `encode` gives what the launcher reads."""

    maps: IdMaps
    hostname: str
    staging: str
    agent_path: str
    capabilities: frozenset[str]
    boot: bytes
    nested_userns: bool = False
    cgroups: list[str] = field(default_factory=list)
    upper: str | None = None
    upper_is_image: bool = False
    upper_bytes: int = _UNBOUNDED_UPPER
    upper_inodes: int = 0
    _sources: list[dict[str, Any]] = field(default_factory=list)
    _ops: list[dict[str, Any]] = field(default_factory=list)
    _stacks: int = 0

    def source(
        self, path: str, *, file: bool = False, writable: bool = False, image: bool = False
    ) -> int:
        """The number of a host path. The same path is staged once."""
        entry = {"path": path, "file": file, "writable": writable, "image": image}
        if entry not in self._sources:
            self._sources.append(entry)
        return self._sources.index(entry)

    def op(self, op: str, target: str, **arguments: Any) -> None:
        self._ops.append({"op": op, "target": target, **arguments})

    def overlay(self, target: str, lowers: tuple[str, ...]) -> None:
        numbers = ":".join(str(self.source(path)) for path in lowers)
        self.op("overlay", target, lowers=numbers, index=self._stacks)
        self._stacks += 1

    def encode(self) -> bytes:
        upper = -1
        if self.upper is not None:
            upper = self.source(self.upper, writable=True, image=self.upper_is_image)
        agent = self.source(self.agent_path, file=True) if self.agent_path else 0
        ranges = self.maps.mode != "single"
        return msgspec.msgpack.encode(
            {
                "ids": self.maps.mode,
                "outer_uids": _lines(self.maps.outer_uids),
                "outer_gids": _lines(self.maps.outer_gids),
                "inner_uids": _lines(self.maps.inner_uids),
                "inner_gids": _lines(self.maps.inner_gids),
                "newuidmap": self.maps.newuidmap,
                "newgidmap": self.maps.newgidmap,
                "staging": self.staging,
                "cgroups": self.cgroups,
                "sources": self._sources,
                "upper_source": upper,
                "upper_size": self.upper_bytes,
                "upper_inodes": self.upper_inodes,
                "upper_owner": -1 if self.maps.upper_owner is None else self.maps.upper_owner,
                "ops": self._ops,
                "hostname": self.hostname,
                "nested_userns": self.nested_userns,
                "devpts_gid": TTY_GROUP if ranges else -1,
                "agent_source": agent,
                "agent_uid": self.maps.agent_id,
                "agent_caps": to_mask(AGENT_CAPABILITIES | self.capabilities),
                "boot": self.boot,
            }
        )


def add_root(plan: LaunchPlan, root: RootFilesystem, limits: Limits, groups: SandboxGroups) -> None:
    """Everything from "/" to the last hidden file, in the order in which it must be mounted."""
    for stack in root.stacks:
        plan.overlay(stack.target, stack.lowers)
    inodes = limits.tmpfs_inodes
    plan.op("proc", "/proc")
    plan.op("dev", "/dev", size=limits.shm_bytes, inodes=inodes)
    plan.op("tmpfs", "/tmp", size=limits.tmp_bytes, inodes=inodes, mode=0o1777)
    plan.op("tmpfs", "/run", size=limits.run_bytes, inodes=inodes, mode=0o755)
    plan.op("dir", "/sys")
    for target, kind, options in groups.mounts:
        plan.op("cgroup", target, type=kind, options=options)
    for path, text in _own_files(plan.hostname).items():
        plan.op("write", path, content=text.encode(), mode=0o644)
    for tree in root.trees:
        plan.op("tree", tree.path, index=plan.source(tree.path))
        for hidden in tree.hidden:
            plan.op("mask", hidden)
    memory = limits.memory_bytes if "memory" in groups.enforced else None
    for path, text in procfs.replaced_files(memory).items():
        plan.op("data", path, content=text.encode())
    for path in procfs.MASKED:
        plan.op("mask", path)
    # /proc/sys is bound onto itself: the binds of ours on it go along, so it comes after them.
    for path in (*procfs.READ_ONLY, *procfs.AGENT_READ_ONLY):
        plan.op("readonly", path)


def _own_files(hostname: str) -> dict[str, str]:
    """An image made on some machine often carries that machine's name and resolver."""
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n",
        "/etc/resolv.conf": "# this sandbox has no network\n",
    }


def _lines(lines: Lines) -> str:
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
