"""System call numbers of the architectures a filter can be made for.

The tables are data (`syscalls.json`), complete up to Linux 6.18: x86_64 from its own header,
aarch64 from the generic one. A test compares them with the headers of the machine it runs on.
They are read on first use, in well under a millisecond.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Mapping
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError, UnsupportedError

X32_BIT = 0x40000000
"""Set in every system call number of the x32 ABI, which shares x86_64's audit architecture."""


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture, under each of the names the formats in use give it."""

    name: str
    """As `uname -m` says it; the key of the tables."""
    audit: int
    """`AUDIT_ARCH_*`, the value of `seccomp_data.arch`."""
    scmp: str
    """In the `architectures` list of an OCI profile."""
    docker: str
    """In the `arches` conditions of a Docker-style profile."""


ARCHES: Mapping[str, Arch] = types.MappingProxyType(
    {
        "x86_64": Arch("x86_64", 0xC000003E, "SCMP_ARCH_X86_64", "amd64"),
        "aarch64": Arch("aarch64", 0xC00000B7, "SCMP_ARCH_AARCH64", "arm64"),
    }
)


def arch_named(name: str | None = None) -> Arch:
    """The architecture called `name`, or this machine's own.

    Raises `InvalidInputError` for a name we carry no table for, `UnsupportedError` when it is the
    machine itself that is unknown.
    """
    if name is not None:
        try:
            return ARCHES[name]
        except KeyError:
            raise InvalidInputError(
                f"unknown architecture {name!r}", hint=f"one of: {', '.join(ARCHES)}"
            ) from None
    machine = os.uname().machine
    found = ARCHES.get(machine)
    if found is None:
        raise UnsupportedError(
            f"no system call table for {machine}",
            hint=f"seccomp filters can be made for: {', '.join(ARCHES)}",
        )
    return found


@functools.cache
def _tables() -> dict[str, dict[str, int]]:
    import json  # a daemon that starts from cached filters never needs it here

    with open(data_path(), "rb") as file:
        tables: dict[str, dict[str, int]] = json.load(file)
    return tables


def data_path() -> str:
    """Where the tables are stored; part of what a cached filter depends on."""
    return os.path.join(os.path.dirname(__file__), "syscalls.json")


def table(arch: str) -> Mapping[str, int]:
    """Name to number for one architecture."""
    return types.MappingProxyType(_tables()[arch_named(arch).name])


def is_known(name: str) -> bool:
    """Whether any architecture we carry has a system call of this name."""
    return any(name in numbers for numbers in _tables().values())
