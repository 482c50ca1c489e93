"""The user's terminal: raw while a command has it, restored whatever happens."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

_TERMINAL_NAME = re.compile(r"[A-Za-z0-9.+-]{1,64}\Z")


class Leaving:
    """What is typed, without the keys that leave a program behind: Ctrl-\\ twice. The first one is
    held back until it is known what comes next."""

    _KEY = b"\x1c"

    def __init__(self) -> None:
        self._held = b""

    def cut(self, data: bytes) -> tuple[bytes, bool]:
        """What goes on to the program, and whether it is left behind now."""
        data, self._held = self._held + data, b""
        before, left, _ = data.partition(self._KEY * 2)
        if left:
            return before, True
        if before.endswith(self._KEY):
            before, self._held = before[:-1], self._KEY
        return before, False


class Terminal:
    """The terminal on stdin."""

    def __init__(self) -> None:
        name = os.environ.get("TERM", "")
        self.kind = name if _TERMINAL_NAME.match(name) else "xterm"

    @classmethod
    def here(cls, wanted: bool | None) -> Terminal | None:
        """The terminal to use: when asked for, or when stdin and stdout both are one."""
        if wanted is None:
            wanted = os.isatty(0) and os.isatty(1)
        return cls() if wanted else None

    def size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(0)
        except OSError:
            return 24, 80
        return max(1, rows), max(1, columns)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        if not os.isatty(0):
            yield
            return
        import termios
        import tty

        saved = termios.tcgetattr(0)
        try:
            tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is kept
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
