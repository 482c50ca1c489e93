"""How far images are, layer by layer: bars on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from types import TracebackType

from agentkernel.client.results import LayerProgress

_SECONDS = 0.1
_BAR = 24
_UP = "\x1b[{lines}A"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
# What a line says of each state; of these only, where there is no terminal.
_LINES = ("fetching", "present", "unpacking", "ready")


class LayerBars:
    """Call it with each word of progress, on stderr. `as_json`: a line of JSON each, on stdout."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self._json = as_json
        self._quiet = quiet and not as_json
        self._terminal = not quiet and not as_json and sys.stderr.isatty()
        self._layers: dict[str, LayerProgress] = {}
        self._drawn = 0
        self._due = 0.0

    def __call__(self, event: LayerProgress) -> None:
        before = self._layers.get(event.layer)
        self._layers[event.layer] = event
        if self._json:
            print(json.dumps({"event": "progress", **event._asdict()}), flush=True)
        elif self._terminal:
            now = time.monotonic()
            if now >= self._due:
                self._due = now + _SECONDS
                self._draw()
        elif self._is_new(before, event):
            print(f"{_short(event)}: {_words(event)}", file=sys.stderr, flush=True)

    def _is_new(self, before: LayerProgress | None, event: LayerProgress) -> bool:
        """Worth a line of its own."""
        changed = before is None or before.state != event.state
        return changed and not self._quiet and event.state in _LINES

    def __enter__(self) -> LayerBars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """No trace of it on the terminal."""
        if self._drawn:
            print(f"{_UP.format(lines=self._drawn)}\r{_CLEAR_BELOW}", end="", file=sys.stderr)
            sys.stderr.flush()
        self._drawn = 0
        self._layers.clear()

    def _draw(self) -> None:
        try:
            columns, lines = os.get_terminal_size(2)
        except OSError:
            columns, lines = 0, 0
        # A terminal that does not know its size says 0.
        columns, lines = columns or 80, lines or 24
        rows = [_row(event)[: columns - 1] for event in self._layers.values()]
        most = max(1, lines - 2)
        if len(rows) > most:
            rows = [*rows[: most - 1], f"… and {len(rows) - most + 1} layers more"]
        up = _UP.format(lines=self._drawn) if self._drawn else ""
        text = "".join(f"\r{row}{_CLEAR_LINE}\n" for row in rows)
        print(f"{up}{text}{_CLEAR_BELOW}", end="", file=sys.stderr, flush=True)
        self._drawn = len(rows)


def _short(event: LayerProgress) -> str:
    return event.layer.removeprefix("sha256:")[:12]


def _words(event: LayerProgress) -> str:
    return f"{event.state} {size_words(event.total)}" if event.state == "fetching" else event.state


def _row(event: LayerProgress) -> str:
    start = f"{_short(event)}  {event.state:<10}"
    if event.state not in ("fetching", "unpacking") or not event.total:
        return start.rstrip()
    part = min(1.0, event.done / event.total)
    filled = int(part * _BAR)
    bar = "#" * filled + "-" * (_BAR - filled)
    return f"{start}[{bar}] {size_words(event.done)} of {size_words(event.total)}"


def size_words(size: int) -> str:
    """As people compare them."""
    number = float(size)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.2f} GiB"
