"""Timing in rounds: every contestant once a round, so that a slow moment hits them all alike."""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Work = Callable[[], Awaitable[Any]]


@dataclass
class Samples:
    """Seconds, one for each round."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.95) - 1)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "median_ms": round(self.median * 1000, 3),
            "p95_ms": round(self.p95 * 1000, 3),
            "rounds": len(self.seconds),
        }


async def rounds(
    contestants: Mapping[str, Work], count: int, *, slow: Mapping[str, int] | None = None
) -> dict[str, Samples]:
    """Times each contestant `count` times after one unmeasured turn.

    `slow`: contestants that take long, and how many rounds they are given.
    """
    for work in contestants.values():
        await work()
    samples = {name: Samples() for name in contestants}
    for turn in range(count):
        for name, work in contestants.items():
            if turn < (slow or {}).get(name, count):
                started = time.perf_counter()
                await work()
                samples[name].seconds.append(time.perf_counter() - started)
    return samples


async def command(*words: str) -> None:
    """A program to its end, for the least that starting one costs. It has to succeed."""
    _spawn(words)


async def command_beside(*words: str) -> None:
    """The same in a thread, so that others go on meanwhile."""
    await asyncio.to_thread(_spawn, words)


def _spawn(words: tuple[str, ...]) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        standard = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1)]
        pid = os.posix_spawnp(words[0], words, os.environ, file_actions=standard)
    finally:
        os.close(null)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise RuntimeError(f"{' '.join(words)} ended with {status}")
