"""Where a runtime's program is on this machine."""

from __future__ import annotations

import os
import shutil

from agentkernel.errors import HostError

# Runtimes are often where a normal user's PATH does not lead.
_MORE_PLACES = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin")


def find_program(backend: str, program: str) -> str | None:
    """What AGENTKERNEL_RUNC, AGENTKERNEL_GVISOR, … name; else in PATH or where systems have it."""
    named = os.environ.get(f"AGENTKERNEL_{backend.upper()}")
    if named:
        return os.path.abspath(named) if os.access(named, os.X_OK) else None
    path = os.pathsep.join((os.environ.get("PATH", ""), *_MORE_PLACES))
    return shutil.which(program, path=path)


def need_program(backend: str, program: str) -> str:
    found = find_program(backend, program)
    if found is None:
        variable = f"AGENTKERNEL_{backend.upper()}"
        if named := os.environ.get(variable):
            raise HostError(f"{variable} names no program: {named}", hint="correct or unset it")
        raise HostError(
            f"{program} is not installed",
            hint=f"install {program}, or set {variable} to where it is",
        )
    return found
