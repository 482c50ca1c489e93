"""The three security profiles: what a sandbox gets when the spec says only a word.

    permissive      trusted code that needs room: Docker's capabilities, almost no limits
    moderate        the default: enough to install packages, compile, debug and serve
    restrictive     code that only computes: no capability, no ptrace, small limits

A profile is a set of defaults, expanded into the spec when the sandbox is made and stored there, so
changing a profile later never widens a sandbox that exists. Isolation itself (namespaces, the
closed socket families, the hidden kernel interfaces) is the same in all three.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError

MIB = 1024 * 1024
GIB = 1024 * MIB

DEFAULT_PROFILE = "moderate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Default limits. None means that the profile sets none, not that the kernel has none."""

    memory_bytes: int | None
    cpus: float | None
    pids: int
    """Processes and threads together; bounded in every profile, a fork bomb needs no privilege."""
    disk_bytes: int | None
    """What the writable layer may grow to."""
    nofile: int | None
    """Open files a process; soft and hard."""
    output_bytes: int
    """Kept of each of stdout and stderr of a foreground command; the rest is counted, not kept."""
    exec_timeout: float | None
    """Seconds a command may run when the caller names no timeout."""
    tmp_bytes: int
    """Size of the tmpfs on /tmp. Bounded in every profile: tmpfs is memory."""
    shm_bytes: int
    run_bytes: int
    tmpfs_inodes: int
    """Files on each tmpfs; empty files cost kernel memory that no size limit counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityProfile:
    """One profile. `capabilities` is what *guest root* gets, inside its own user namespace."""

    name: str
    summary: str
    capabilities: frozenset[str]
    seccomp: str
    """Name of the shipped seccomp profile."""
    limits: Limits
    network: tuple[str, ...]
    """The presets of hosts that can be reached, unless others are named; empty: none."""

    def capabilities_for(self, uid: int) -> frozenset[str]:
        """The capability set of a process that starts as `uid`: none unless it is guest root."""
        return self.capabilities if uid == 0 else frozenset()


_MODERATE_CAPS = frozenset(
    {
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_NET_BIND_SERVICE",
        "CAP_SETFCAP",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SYS_CHROOT",
    }
)

SECURITY_PROFILES: Mapping[str, SecurityProfile] = types.MappingProxyType(
    {
        "permissive": SecurityProfile(
            name="permissive",
            summary="trusted code that needs room",
            # Docker's default fourteen.
            capabilities=_MODERATE_CAPS
            | {"CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETPCAP"},
            seccomp="permissive",
            network=("registries", "public"),
            limits=Limits(
                memory_bytes=None,
                cpus=None,
                pids=4096,
                disk_bytes=None,
                nofile=None,
                output_bytes=64 * MIB,
                exec_timeout=None,
                tmp_bytes=4 * GIB,
                shm_bytes=1 * GIB,
                run_bytes=256 * MIB,
                tmpfs_inodes=1_048_576,
            ),
        ),
        "moderate": SecurityProfile(
            name="moderate",
            summary="install, compile, debug, serve",
            # What apt-get, dpkg and their maintainer scripts use, and low ports.
            capabilities=_MODERATE_CAPS,
            seccomp="moderate",
            network=("registries",),
            limits=Limits(
                memory_bytes=4 * GIB,
                cpus=None,
                pids=512,
                disk_bytes=4 * GIB,
                nofile=65536,
                output_bytes=16 * MIB,
                exec_timeout=None,
                tmp_bytes=1 * GIB,
                shm_bytes=256 * MIB,
                run_bytes=64 * MIB,
                tmpfs_inodes=262_144,
            ),
        ),
        "restrictive": SecurityProfile(
            name="restrictive",
            summary="code that only computes",
            capabilities=frozenset(),
            seccomp="restrictive",
            network=(),
            limits=Limits(
                memory_bytes=512 * MIB,
                cpus=1.0,
                pids=128,
                disk_bytes=512 * MIB,
                nofile=1024,
                output_bytes=4 * MIB,
                exec_timeout=None,
                tmp_bytes=128 * MIB,
                shm_bytes=64 * MIB,
                run_bytes=16 * MIB,
                tmpfs_inodes=32_768,
            ),
        ),
    }
)


def security_profile(name: str = DEFAULT_PROFILE) -> SecurityProfile:
    """The profile called `name`; `InvalidInputError` when there is none."""
    try:
        return SECURITY_PROFILES[name]
    except KeyError:
        raise InvalidInputError(
            f"unknown security profile {name!r}", hint=f"one of: {', '.join(SECURITY_PROFILES)}"
        ) from None
