"""Sandboxes with exactly one guard taken away, to see that the attacks would work without it.

Nearly every guard is a decision of the host side (launch plan, boot configuration, compiled
filter), so it can be left out there. Whatever is left out, the sandbox keeps its namespaces and is
destroyed by its test.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from agentkernel.backends.base import Blueprint
from agentkernel.backends.local import boot, procfs
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec, expand

from .probes import Box, interpreter

ALLOW_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)

Change = Callable[[Blueprint], Blueprint]


def _no_filter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(boot, "compile_profile", lambda *_args, **_kwargs: ALLOW_ALL)


def _no_masks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(procfs, "MASKED", ())


def _writable_proc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(procfs, "READ_ONLY", ())


def _writable_agent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(procfs, "AGENT_READ_ONLY", ())


def _true_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(procfs, "replaced_files", lambda _memory: {})


GUARDS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "seccomp": _no_filter,
    "masks": _no_masks,
    "read-only": _writable_proc,
    "agent read-only": _writable_agent,
    "replaced files": _true_files,
}


def with_capabilities(*names: str) -> Change:
    return lambda b: msgspec.structs.replace(b, capabilities=b.capabilities | set(names))


def with_limits(**values: Any) -> Change:
    return lambda b: msgspec.structs.replace(b, limits=dataclasses.replace(b.limits, **values))


@contextlib.asynccontextmanager
async def box_without(
    kernel: Runs,
    *guards: str,
    spec: SandboxSpec | None = None,
    change: Change | None = None,
) -> AsyncIterator[Box]:
    """A sandbox that lacks `guards` (none: an ordinary one), gone at the end."""
    spec = spec or SandboxSpec()
    blueprint = expand(spec, owned=True)
    if change:
        blueprint = change(blueprint)
    with pytest.MonkeyPatch.context() as patch:
        for guard in guards:
            GUARDS[guard](patch)
        sandbox = await kernel.backends[spec.backend].create(blueprint)
    try:
        yield Box(kernel, sandbox, await interpreter(kernel, sandbox))
    finally:
        await sandbox.destroy()
