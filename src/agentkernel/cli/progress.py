"""How far a copy is, on a terminal, when it takes long enough to ask oneself."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

from agentkernel.trees.entries import TreeSummary

_FIRST_SECONDS = 1.0
_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class Progress:
    """One line on stderr that is gone at the end; nothing at all where that is no terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = False
        self._due = time.monotonic() + _FIRST_SECONDS
        self._quiet = quiet or not sys.stderr.isatty()

    def tree(self, summary: TreeSummary) -> None:
        self._show(summary.bytes, f"{summary.files} files, ")

    def pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            yield piece
            size += len(piece)
            self._show(size)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    def _show(self, size: int, files: str = "") -> None:
        now = time.monotonic()
        if self._quiet or now < self._due:
            return
        self._due, self._shown = now + _SECONDS, True
        print(f"{_CLEAR}{files}{size / (1 << 20):.1f} MiB", end="", file=sys.stderr, flush=True)
