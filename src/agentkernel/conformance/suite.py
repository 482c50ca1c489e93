"""The list of cases, and how they are run."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from agentkernel.conformance import (
    commands,
    confinement,
    faults,
    files,
    images,
    life,
    limits,
    network,
    volumes,
)
from agentkernel.conformance.bench import Bench, Failed, NotHere
from agentkernel.errors import AgentKernelError

CASE_SECONDS = 120.0


class Case(NamedTuple):
    """`name` is the function's, `about` its first line."""

    name: str
    about: str
    run: Callable[[Bench], Awaitable[None]]


class CaseResult(msgspec.Struct, frozen=True):
    name: str
    about: str
    state: Literal["passed", "failed", "not_here"]
    detail: str = ""


CASES: tuple[Case, ...] = tuple(
    Case(function.__name__, (function.__doc__ or "").partition("\n")[0], function)
    for module in (commands, files, images, volumes, limits, confinement, network, life, faults)
    for function in module.CASES
)


async def check(backend: str, state_dir: Path) -> AsyncIterator[CaseResult]:
    """Runs every case, one after another, whatever became of those before."""
    for case in CASES:
        yield await _run(case, Bench(backend, state_dir))


async def _run(case: Case, bench: Bench) -> CaseResult:
    state: Literal["passed", "failed", "not_here"] = "failed"
    try:
        async with asyncio.timeout(CASE_SECONDS):
            await case.run(bench)
        state, detail = "passed", ""
    except NotHere as exc:
        state, detail = "not_here", str(exc)
    except TimeoutError:
        detail = f"not done within {CASE_SECONDS:g} s"
    except (Failed, AgentKernelError) as exc:
        detail = str(exc)
    except Exception as exc:  # a case may meet anything, and the others still want their turn
        detail = "".join(traceback.format_exception_only(exc)).strip()
    return CaseResult(case.name, case.about, state, detail)
