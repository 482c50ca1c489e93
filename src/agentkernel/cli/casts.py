"""Recordings of terminals (asciicast v2), which come from inside: read and played."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

_MOST_LINE: Final = 4 << 20


def play(
    frames: Iterable[Any],
    show: Callable[[bytes], object],
    *,
    pause: Callable[[float], object] | None,
    speed: float,
    idle: float,
) -> None:
    """Shows what was put out, with the pauses there were: none longer than `idle`. `pause`: None,
    all at once. What is no frame is left out."""
    before = 0.0
    for frame in frames:
        if not isinstance(frame, list) or len(frame) != 3:
            continue
        at, kind, data = frame
        if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(data, str):
            continue
        if kind != "o" or not math.isfinite(at):
            continue
        if pause is not None and at > before:
            pause(min(at - before, idle) / speed)
        before = max(before, float(at))
        show(data.encode("utf-8", "replace"))


def frames_of(pieces: Iterable[bytes]) -> Iterator[Any]:
    """The lines of an asciicast: its head, then its frames. What is no JSON is left out."""
    rest, skips = b"", False
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not skips:
                yield from _frame(line)
            skips = False
        if len(rest) > _MOST_LINE:
            rest, skips = b"", True
    if rest and not skips:
        yield from _frame(rest)


def _frame(line: bytes) -> Iterator[Any]:
    try:
        yield json.loads(line)
    except (ValueError, RecursionError):
        return
