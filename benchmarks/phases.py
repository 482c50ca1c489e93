"""Where the time of a life goes, in process: what stands beside a line that is missed.

Functions of ours are timed on their way, without a profiler, which would make small ones look
large. A phase contains those that are set in below it; what is in none of them is its own.
"""

from __future__ import annotations

import functools
import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from ours import Ours

from agentkernel.backends.local import backend, launcher, sandbox
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.kernel.runs import Runs

ROUNDS, WARM_UP = 120, 10


class Phase(NamedTuple):
    depth: int
    words: str
    owner: Any
    name: str


PHASES = (
    Phase(0, "create", Runs, "create"),
    Phase(1, "its directory, with a lock", SandboxDirectory, "create"),
    Phase(1, "a range of ids", backend.LocalBackend, "_choose_ids"),
    Phase(1, "control groups and limits", SandboxGroups, "create"),
    Phase(1, "the launcher: spawned and waited for", backend, "launch"),
    Phase(2, "its own work: namespaces, mounts, agentd", launcher, "_read_all"),
    Phase(1, "what is written down for the next owner", SandboxDirectory, "record_runtime"),
    Phase(1, "connecting to agentd, both prove who they are", backend.LocalBackend, "_connect"),
    Phase(0, "run `true`", Runs, "run"),
    Phase(0, "destroy", Runs, "destroy"),
    Phase(1, "processes, groups and ids", sandbox, "end_sandbox"),
    Phase(1, "files", sandbox, "remove_files"),
)


async def measure(ours: Ours) -> list[tuple[Phase, float]]:
    """Each phase with its median in milliseconds."""
    samples: dict[Phase, list[float]] = {phase: [] for phase in PHASES}
    with ExitStack() as timed:
        for phase, found in samples.items():
            timed.enter_context(_timed(phase, found.append))
        for _ in range(ROUNDS):
            await ours.run_in_process()
    return [
        (phase, 1000 * statistics.median(found[WARM_UP:]))
        for phase, found in samples.items()
        if len(found) > WARM_UP
    ]


@contextmanager
def _timed(phase: Phase, tell: Callable[[float], None]) -> Iterator[None]:
    original = inspect.getattr_static(phase.owner, phase.name)
    function = getattr(phase.owner, phase.name)
    timed: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return await function(*args, **kwargs)
            finally:
                tell(time.perf_counter() - started)

    else:

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                tell(time.perf_counter() - started)

    bound = isinstance(original, classmethod | staticmethod)
    setattr(phase.owner, phase.name, staticmethod(timed) if bound else timed)
    try:
        yield
    finally:
        setattr(phase.owner, phase.name, original)
