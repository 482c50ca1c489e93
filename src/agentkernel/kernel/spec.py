"""What a caller asks for, and its expansion into a blueprint.

A spec is sparse: what it leaves out comes from its profile. A blueprint is complete and is what
gets stored, so a profile that changes later never widens a sandbox that exists.
"""

from __future__ import annotations

import dataclasses

import msgspec

from agentkernel.backends.base import Blueprint
from agentkernel.backends.native.diagnose import KERNEL_FLOOR_MEMORY_UPPER, kernel_version
from agentkernel.backends.registry import DEFAULT_BACKEND
from agentkernel.errors import InvalidInputError, UnenforceableError
from agentkernel.ids import new_id
from agentkernel.security.profiles import Limits, security_profile

MINIMUM_MEMORY = 16 << 20
MINIMUM_DISK = 1 << 20
MAXIMUM_BYTES = 1 << 60
# What the kernel can number: PID_MAX_LIMIT, and the most that fs.nr_open can be set to.
MAXIMUM_PIDS = 1 << 22
MAXIMUM_NOFILE = 1 << 30


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox is to be. None: as the profile says.

    `ephemeral`: its files are in memory where the kernel can do that, and it is removed when it
    ends; any other keeps its files on disk over stop and start.
    """

    backend: str = DEFAULT_BACKEND
    image: str = "host"
    profile: str = "moderate"
    user: str = "root"
    toolchains: bool = True
    nested_userns: bool = False
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    unlimited_disk: bool = False
    nofile: int | None = None
    ephemeral: bool = True
    env: dict[str, str] = {}


def expand(spec: SandboxSpec, *, owned: bool) -> Blueprint:
    """The blueprint of a new sandbox. Raises InvalidInputError for what no sandbox can have."""
    profile = security_profile(spec.profile)
    limits = _limits(spec, profile.limits)
    explicit = {
        name
        for name, value in (
            ("memory", spec.memory_bytes),
            ("cpus", spec.cpus),
            ("pids", spec.pids),
            ("disk", spec.disk_bytes),
            ("nofile", spec.nofile),
        )
        if value is not None
    }
    return Blueprint(
        id=new_id(),
        image=spec.image,
        user=spec.user,
        toolchains=spec.toolchains,
        capabilities=profile.capabilities,
        seccomp=profile.seccomp,
        nested_userns=spec.nested_userns,
        limits=limits,
        explicit=frozenset(explicit),
        owned=owned,
        hostname="sandbox",
        profile=profile.name,
    )


def _limits(spec: SandboxSpec, defaults: Limits) -> Limits:
    _check_range("memory", spec.memory_bytes, MINIMUM_MEMORY, MAXIMUM_BYTES)
    _check_range("disk", spec.disk_bytes, MINIMUM_DISK, MAXIMUM_BYTES)
    _check_range("pids", spec.pids, 4, MAXIMUM_PIDS)
    _check_range("nofile", spec.nofile, 16, MAXIMUM_NOFILE)
    if spec.cpus is not None and not 0.01 <= spec.cpus <= 4096:
        raise InvalidInputError("cpus must be between 0.01 and 4096")
    memory = _memory(spec, defaults.memory_bytes)
    limits = dataclasses.replace(
        defaults,
        memory_bytes=memory,
        cpus=spec.cpus if spec.cpus is not None else defaults.cpus,
        pids=spec.pids if spec.pids is not None else defaults.pids,
        nofile=spec.nofile if spec.nofile is not None else defaults.nofile,
        disk_bytes=_disk(spec, defaults.disk_bytes, memory),
    )
    return limits if memory is None else _within(limits, memory)


def _memory(spec: SandboxSpec, default: int | None) -> int | None:
    """Files in memory count as memory: a bound for them asks for twice as much."""
    needed = 2 * spec.disk_bytes if spec.disk_bytes is not None else 0
    if spec.memory_bytes is None:
        return None if default is None else max(default, needed)
    if spec.memory_bytes < needed:
        raise InvalidInputError(
            "--disk is more than half of --memory, and files with a bound are in memory",
            hint=f"use --memory {-(-needed // (1 << 20))}M or more, or --disk unlimited",
        )
    return spec.memory_bytes


def _within(limits: Limits, memory: int) -> Limits:
    """Files in memory belong to no process: if they could fill it, agentd would be killed for it.

    With the disk's half at most 7/8 of the memory, an inode (about 1 KiB) for each 16 KiB included.
    """
    tmp, shm, run = (
        min(limits.tmp_bytes, memory // 5),
        min(limits.shm_bytes, memory // 24),
        min(limits.run_bytes, memory // 48),
    )
    inodes = min(limits.tmpfs_inodes, max(1024, tmp // 16384))
    return dataclasses.replace(
        limits, tmp_bytes=tmp, shm_bytes=shm, run_bytes=run, tmpfs_inodes=inodes
    )


def _disk(spec: SandboxSpec, default: int | None, memory: int | None) -> int | None:
    """A bound is a tmpfs and counts as memory: a default one leaves half of that for processes."""
    if not spec.ephemeral and spec.disk_bytes is not None:
        raise UnenforceableError(
            "--disk can't be enforced for a sandbox that is kept: its files are on disk",
            hint="leave --disk out",
        )
    if spec.unlimited_disk or not spec.ephemeral:
        return None
    in_memory = kernel_version() >= KERNEL_FLOOR_MEMORY_UPPER
    if spec.disk_bytes is not None:
        if not in_memory:
            raise UnenforceableError(
                "--disk can't be enforced: files in memory need Linux "
                + ".".join(map(str, KERNEL_FLOOR_MEMORY_UPPER)),
                hint="leave --disk out, or use --disk unlimited",
            )
        return spec.disk_bytes
    if default is None or not in_memory:
        return None
    return default if memory is None else min(default, memory // 2)


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and value < least:
        raise InvalidInputError(f"{name} must be at least {least}")
    if value is not None and value > most:
        raise InvalidInputError(f"{name} must be at most {most}")
