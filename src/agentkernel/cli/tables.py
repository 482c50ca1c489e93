"""Rows of text for people. No control character of a guest or a user gets to the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentkernel.cli.values import printable

_STEPS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "m"), (0, 1, "s"))


def show(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need be; the last one as it comes."""
    lines = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def ago(moment: float | None) -> str:
    return "-" if moment is None else span(time.time() - moment)


def until(moment: float | None) -> str:
    return "-" if moment is None else span(moment - time.time())


def span(seconds: float) -> str:
    seconds = max(0, int(seconds))
    for least, unit, letter in _STEPS:
        if seconds >= least:
            return f"{seconds // unit}{letter}"
    return "0s"
