"""`setup --check`: every known backend, found or not, tried, and why it does not work.

Probing is doing: a backend works if a sandbox of it ran a command, within a deadline. That a
program or a device exists proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkernel.backends.base import EffectiveLine
from agentkernel.backends.registry import DEFAULT_BACKEND, Backends, backend_names
from agentkernel.errors import AgentKernelError
from agentkernel.guest.processes import Outcome
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.state import state_directory

DEADLINE_S = 60.0

# How a machine that has an engine shows it; the native one is always there. One that is no backend
# of this version is named all the same.
_PROGRAMS = {
    "runc": ("runc",),
    "crun": ("crun",),
    "gvisor": ("runsc",),
    "docker": ("dockerd",),
    "podman": ("podman",),
    "qemu": ("qemu-system-x86_64", "qemu-system-aarch64"),
    "firecracker": ("firecracker",),
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned of one backend. `features`: what its engine can do at all."""

    backend: str
    found: bool
    works: bool
    supported: bool
    tried: str
    detail: str
    hint: str | None = None
    isolation: str | None = None
    features: dict[str, object] = {}


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox showed of itself; nothing if there was none. `inside` is what a process in it
    saw of /proc/self, by file."""

    check: Check
    effective: tuple[EffectiveLine, ...] = ()
    inside: dict[str, str] = {}


async def check_backends(state_dir: Path | None = None, only: str | None = None) -> list[Check]:
    checks = []
    if only in (None, DEFAULT_BACKEND):
        checks.append((await probe_backend(state_dir)).check)
    return checks + await check_others(state_dir, only)


def look_for_backends(state_dir: Path) -> list[Check]:
    """The backends of this version, none of them tried: `works` says nothing."""
    backends = Backends(state_dir)
    found = []
    for name in backend_names():
        path = None if name == DEFAULT_BACKEND else _find(name)
        there = name == DEFAULT_BACKEND or path is not None
        where = "part of agentkernel" if name == DEFAULT_BACKEND else f"found {path}"
        found.append(
            Check(
                backend=name,
                found=there,
                works=False,
                supported=True,
                tried="looked for the program",
                detail=where if there else f"{_PROGRAMS[name][0]} is not installed",
                isolation=backends[name].isolation,
                features=msgspec.to_builtins(backends[name].features),
            )
        )
    return found


async def check_others(state_dir: Path | None = None, only: str | None = None) -> list[Check]:
    """All but the native one. What is not installed is not tried."""
    names = {*backend_names(), *_PROGRAMS} - {DEFAULT_BACKEND}
    return [
        await _check(state_dir, name) for name in sorted(names, key=_place) if only in (None, name)
    ]


async def probe_backend(
    state_dir: Path | None = None,
    spec: SandboxSpec | None = None,
    look: Sequence[str] = (),
    *,
    way_out: bool = False,
) -> Probe:
    """Makes a sandbox and runs `true` in it, then reads the files of /proc/self named by `look`.
    `way_out`: it has the rules of a network."""
    spec = spec or SandboxSpec()
    backend = Backends(state_dir or state_directory())[spec.backend]
    tried = "made a sandbox of the host image and ran `true` in it"
    detail, hint, works = "", None, False
    effective: tuple[EffectiveLine, ...] = ()
    inside: dict[str, str] = {}
    try:
        async with asyncio.timeout(DEADLINE_S), Runs(state_dir) as runs:
            sandbox = await runs.create(spec, way_out=way_out)
            effective = sandbox.effective
            result = await runs.run(sandbox, ["true"])
            works = result.status.outcome is Outcome.EXITED and result.status.exit_code == 0
            for name in look:
                read = await runs.run(sandbox, ["cat", f"/proc/self/{name}"])
                inside[name] = read.stdout.decode("utf-8", "replace")
            ids = next(line.value for line in sandbox.effective if line.what == "ids")
            detail = f"works; ids: {ids}" if works else f"`true` did not succeed: {result.status}"
    except TimeoutError:
        detail = f"no answer within {DEADLINE_S:g} s"
    except AgentKernelError as exc:
        detail, hint = exc.message, exc.hint
    check = Check(
        backend=backend.name,
        found=True,
        works=works,
        supported=True,
        tried=tried,
        detail=detail,
        hint=hint,
        isolation=backend.isolation,
        features=msgspec.to_builtins(backend.features),
    )
    return Probe(check=check, effective=effective, inside=inside)


async def _check(state_dir: Path | None, name: str) -> Check:
    supported = name in backend_names()
    path = _find(name)
    if path and supported:
        return (await probe_backend(state_dir, SandboxSpec(backend=name))).check
    missing = f"{_PROGRAMS[name][0]} is not installed"
    return Check(
        backend=name,
        found=path is not None,
        works=False,
        supported=supported,
        tried="looked for the program"
        + ("" if supported else "; not tried, because this version has no backend for it"),
        detail=f"found {path}; not supported yet" if path else missing,
    )


def _find(name: str) -> str | None:
    """In PATH, or where systems have what only root runs; or where a variable says it is."""
    named = os.environ.get(f"AGENTKERNEL_{name.upper()}")
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    found = (shutil.which(program, path=places) for program in _PROGRAMS.get(name, (name,)))
    return named or next((path for path in found if path), None)


def _place(name: str) -> tuple[int, str]:
    """Backends in the order of the registry, then the others."""
    names = backend_names()
    return (names.index(name), "") if name in names else (len(names), name)
