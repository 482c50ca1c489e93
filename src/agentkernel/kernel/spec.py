"""What a caller asks for, and its expansion into a blueprint.

A spec is sparse: what it leaves out comes from its profile. A blueprint is complete and is what
gets stored, so a profile that changes later never widens a sandbox that exists.
"""

from __future__ import annotations

import dataclasses

import msgspec

from agentkernel.backends.base import Blueprint
from agentkernel.backends.native.diagnose import KERNEL_FLOOR_MEMORY_UPPER, kernel_version
from agentkernel.errors import InvalidInputError, UnenforceableError
from agentkernel.ids import new_id
from agentkernel.security.profiles import Limits, security_profile

MINIMUM_MEMORY = 16 << 20
MINIMUM_DISK = 1 << 20
UNBOUNDED = "unlimited"


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox is to be. None: as the profile says.

    `ephemeral`: its files are in memory where the kernel can do that, and it is removed when it
    ends; any other keeps its files on disk over stop and start.
    """

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
    _at_least("memory", spec.memory_bytes, MINIMUM_MEMORY)
    _at_least("disk", spec.disk_bytes, MINIMUM_DISK)
    _at_least("pids", spec.pids, 4)
    _at_least("nofile", spec.nofile, 16)
    if spec.cpus is not None and not 0.01 <= spec.cpus <= 4096:
        raise InvalidInputError("cpus must be between 0.01 and 4096")
    memory = spec.memory_bytes if spec.memory_bytes is not None else defaults.memory_bytes
    return dataclasses.replace(
        defaults,
        memory_bytes=memory,
        cpus=spec.cpus if spec.cpus is not None else defaults.cpus,
        pids=spec.pids if spec.pids is not None else defaults.pids,
        nofile=spec.nofile if spec.nofile is not None else defaults.nofile,
        disk_bytes=_disk(spec, defaults.disk_bytes, memory),
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


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise InvalidInputError(f"{name} must be at least {least}")
