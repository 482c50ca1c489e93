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
from agentkernel.errors import AgentKernelError
from agentkernel.guest.processes import Outcome
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

DEADLINE_S = 60.0

# Engines the project will speak to: how a machine that has one shows it.
_OTHER_ENGINES = {
    "runc": ("runc",),
    "crun": ("crun",),
    "gvisor": ("runsc",),
    "docker": ("dockerd",),
    "podman": ("podman",),
    "qemu": ("qemu-system-x86_64", "qemu-system-aarch64"),
    "firecracker": ("firecracker",),
}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned of one backend."""

    backend: str
    found: bool
    works: bool
    supported: bool
    tried: str
    detail: str
    hint: str | None = None
    isolation: str | None = None


class NativeProbe(msgspec.Struct, frozen=True, kw_only=True):
    """What a native sandbox showed of itself; nothing if there was none. `inside` is what a
    process in it saw of /proc/self, by file."""

    check: Check
    effective: tuple[EffectiveLine, ...] = ()
    inside: dict[str, str] = {}


async def check_backends(state_dir: Path | None = None, only: str | None = None) -> list[Check]:
    checks = []
    if only in (None, "native"):
        checks.append((await probe_native(state_dir)).check)
    return checks + check_others(only)


def check_others(only: str | None = None) -> list[Check]:
    return [
        _look_for(name, programs)
        for name, programs in _OTHER_ENGINES.items()
        if only in (None, name)
    ]


async def probe_native(
    state_dir: Path | None = None, spec: SandboxSpec | None = None, look: Sequence[str] = ()
) -> NativeProbe:
    """Makes a sandbox and runs `true` in it, then reads the files of /proc/self named by `look`."""
    tried = "made a sandbox of the host image and ran `true` in it"
    detail, hint, works = "", None, False
    effective: tuple[EffectiveLine, ...] = ()
    inside: dict[str, str] = {}
    try:
        async with asyncio.timeout(DEADLINE_S), Runs(state_dir) as runs:
            sandbox = await runs.create(spec or SandboxSpec())
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
        backend="native",
        found=True,
        works=works,
        supported=True,
        tried=tried,
        detail=detail,
        hint=hint,
        isolation="shared kernel",
    )
    return NativeProbe(check=check, effective=effective, inside=inside)


def _look_for(name: str, programs: tuple[str, ...]) -> Check:
    path = next((found for p in programs if (found := shutil.which(p))), None)
    if path is None and os.path.exists(f"/usr/sbin/{programs[0]}"):
        path = f"/usr/sbin/{programs[0]}"
    return Check(
        backend=name,
        found=path is not None,
        works=False,
        supported=False,
        tried="looked for the program; not tried, because this version has no backend for it",
        detail=f"found {path}; not supported yet" if path else f"{programs[0]} is not installed",
    )
