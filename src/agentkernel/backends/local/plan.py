"""The launch plan: one MessagePack map that tells the C launcher what to make.

All knowledge is on this side; the launcher only carries out. `docs/reference/launch-plan.md` has
the keys. Order matters in `ops`: a mount is made on what the ones before it have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentkernel.backends.local import procfs
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.idmaps import IdMaps, Lines
from agentkernel.images.model import RootFilesystem
from agentkernel.network.guest_files.paths import GATEWAY
from agentkernel.network.policy.model import NetworkSetup
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
    network: NetworkSetup | None = None
    project_uids: Lines = ()
    project_gids: Lines = ()
    cgroups: list[str] = field(default_factory=list)
    upper: str | None = None
    upper_is_image: bool = False
    upper_bytes: int = _UNBOUNDED_UPPER
    upper_inodes: int = 0
    engine: list[str] = field(default_factory=list)
    engine_log: str = ""
    engine_directory: str = ""
    engine_listens: bool = False
    engine_without_groups: bool = False
    _sources: list[dict[str, Any]] = field(default_factory=list)
    _ops: list[dict[str, Any]] = field(default_factory=list)
    _late: list[dict[str, Any]] = field(default_factory=list)
    _stacks: int = 0

    def source(
        self,
        path: str,
        *,
        file: bool = False,
        writable: bool = False,
        image: bool = False,
        project: bool = False,
    ) -> int:
        """The number of a host path. The same path is staged once."""
        entry: dict[str, Any] = {"path": path, "file": file, "writable": writable, "image": image}
        if project:
            entry["project"] = True
        if entry not in self._sources:
            self._sources.append(entry)
        return self._sources.index(entry)

    def volume(self, path: str, *, writable: bool, image: bool, owner: int) -> int:
        """The number of a volume, whose directory gets that owner when it is made."""
        entry = {"path": path, "writable": writable, "image": image, "volume": True, "owner": owner}
        self._sources.append(entry)
        return len(self._sources) - 1

    def op(self, op: str, target: str, **arguments: Any) -> None:
        self._ops.append({"op": op, "target": target, **arguments})

    def late(self, op: str, target: str, **arguments: Any) -> None:
        """An operation in the container that a runtime has made."""
        self._late.append({"op": op, "target": target, **arguments})

    def overlay(self, target: str, lowers: tuple[str, ...]) -> None:
        numbers = ":".join(str(self.source(path)) for path in lowers)
        self.op("overlay", target, lowers=numbers, index=self._stacks)
        self._stacks += 1

    def staged(self, number: int) -> str:
        """Where source `number` is for whoever the launcher runs."""
        return f"{self.staging}/{number}"

    @property
    def bundle(self) -> str:
        """The directory beside the staged sources that holds the root (`r`) and `stage`d files."""
        return f"{self.staging}/b"

    def encode(self) -> bytes:
        upper = -1
        if self.upper is not None:
            upper = self.source(self.upper, writable=True, image=self.upper_is_image)
        agent = self.source(self.agent_path, file=True) if self.agent_path else 0
        engine = self.engine_directory
        engine_source = self.source(engine, writable=True) if engine else -1
        ranges = self.maps.mode != "single"
        project = {}
        if self.project_uids:
            project = {
                "project_uids": encode_lines(self.project_uids),
                "project_gids": encode_lines(self.project_gids),
            }
        return msgspec.msgpack.encode(
            {
                **project,
                "ids": self.maps.mode,
                "outer_uids": encode_lines(self.maps.outer_uids),
                "outer_gids": encode_lines(self.maps.outer_gids),
                "inner_uids": encode_lines(self.maps.inner_uids),
                "inner_gids": encode_lines(self.maps.inner_gids),
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
                "late": self._late,
                "hostname": self.hostname,
                "nested_userns": self.nested_userns,
                "network": self.network is not None,
                "devpts_gid": TTY_GROUP if ranges else -1,
                "agent_source": agent,
                "agent_uid": self.maps.agent_id,
                "agent_caps": to_mask(AGENT_CAPABILITIES | self.capabilities),
                "boot": self.boot,
                "engine": self.engine,
                "engine_log": self.engine_log,
                "engine_source": engine_source,
                "engine_listens": self.engine_listens,
                "engine_without_groups": self.engine_without_groups,
            }
        )


def add_root(
    plan: LaunchPlan,
    root: RootFilesystem,
    limits: Limits,
    groups: SandboxGroups,
    *,
    building: bool = False,
) -> None:
    """Everything from "/" to the last hidden file, in the order in which it must be mounted.
    `building`: what is written to /tmp and /run is kept with the rest."""
    inodes = limits.tmpfs_inodes
    add_stacks(plan, root)
    plan.op("dev", "/dev", size=limits.shm_bytes, inodes=inodes)
    if building:
        plan.op("dir", "/run")
    else:
        plan.op("tmpfs", "/tmp", size=limits.tmp_bytes, inodes=inodes, mode=0o1777)
        plan.op("tmpfs", "/run", size=limits.run_bytes, inodes=inodes, mode=0o755)
    add_files(plan, root)
    add_groups(plan, groups)
    plan.op("proc", "/proc")
    add_proc(plan.op, limits, groups)


def add_proc(op: Callable[..., None], limits: Limits, groups: SandboxGroups) -> None:
    """What is ours, hidden or read-only of a mounted /proc. `op`: `LaunchPlan.op` or `late`."""
    for path, text in procfs.replaced_files(limited_memory(limits, groups)).items():
        op("data", path, content=text.encode())
    for path in procfs.MASKED:
        op("mask", path)
    # /proc/sys is bound onto itself: the binds of ours on it go along, so it comes after them.
    for path in (*procfs.READ_ONLY, *procfs.AGENT_READ_ONLY):
        op("readonly", path)


def limited_memory(limits: Limits, groups: SandboxGroups) -> int | None:
    return limits.memory_bytes if "memory" in groups.enforced else None


def add_stacks(plan: LaunchPlan, root: RootFilesystem) -> None:
    for stack in root.stacks:
        plan.overlay(stack.target, stack.lowers)


def add_files(plan: LaunchPlan, root: RootFilesystem) -> None:
    """The sandbox's own files, and trees of the host, which may lie in a tmpfs (/tmp/tool)."""
    for path, text in _own_files(plan.hostname, plan.network).items():
        plan.op("write", path, content=text.encode(), mode=0o644)
    if root.cwd != "/":
        plan.op("dir", root.cwd, optional=True)
    for tree in root.trees:
        plan.op("tree", tree.target, index=plan.source(tree.path, project=tree.owned))
        for hidden in tree.hidden:
            plan.op("mask", hidden)


def add_groups(plan: LaunchPlan, groups: SandboxGroups) -> None:
    """/sys holds nothing but the sandbox's own control group."""
    plan.op("dir", "/sys")
    for target, kind, options in groups.mounts:
        plan.op("cgroup", target, type=kind, options=options)


_NO_RESOLVER = "# this sandbox has no network\n"
_RESOLVER = f"nameserver {GATEWAY}\n"


def _own_files(hostname: str, network: NetworkSetup | None) -> dict[str, str]:
    """An image made on some machine often carries that machine's name and resolver."""
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n",
        "/etc/resolv.conf": _RESOLVER if network else _NO_RESOLVER,
        **(network.files if network else {}),
    }


def encode_lines(lines: Lines) -> str:
    """A map as the kernel takes it."""
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
