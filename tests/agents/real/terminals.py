"""A command on a terminal of its own, as somebody sits before it."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SECONDS = 90.0
_FORWARD = re.compile(r"\x1b\[\d*C")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_].*?\x1b\\|.)"
)
COLOURED = re.compile(r"\x1b\[(?:\d+;)*[34]8;[25];")
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
PASTING = "\x1b[?2004h"
"""What a program says that wants to know what is pasted."""


class Terminal:
    """`output`: everything the command has written so far."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], rows: int, columns: int
    ) -> None:
        self._master, slave = os.openpty()
        self.resize(rows, columns)
        self.output = ""
        self._answered = 0
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._master, 1 << 16):
                self.output += data.decode(errors="replace")
                self._answer()

    def _answer(self) -> None:
        """What terminals are asked: where the cursor is, what they are."""
        news, self._answered = self.output[self._answered :], len(self.output)
        if "\x1b[6n" in news:
            self.send("\x1b[1;1R")
        if "\x1b[c" in news or "\x1b[0c" in news:
            self.send("\x1b[?62;c")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def paste(self, text: str) -> None:
        self.send(f"{PASTE_BEGIN}{text}{PASTE_END}")

    def shown(self) -> str:
        """What was written, without escapes and without any white space: programs put words at
        their places rather than write spaces."""
        plain = _ESCAPES.sub("", _FORWARD.sub(" ", self.output))
        return re.sub(r"\s", "", plain)

    def wait_for(self, *texts: str, after: int = 0, seconds: float = SECONDS) -> int:
        """Until one of these is shown, behind `after` characters; how much was shown then."""
        wanted = [re.sub(r"\s", "", text) for text in texts]
        until = time.monotonic() + seconds
        while True:
            shown = self.shown()
            if any(text in shown[after:] for text in wanted):
                return len(shown)
            assert time.monotonic() < until, f"never shown: {texts}; but: …{shown[-1500:]}"
            assert self.process.poll() is None or self._reader.is_alive(), shown[-1500:]
            time.sleep(0.05)

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        with suppress(OSError):
            os.close(self._master)
