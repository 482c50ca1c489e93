"""A command line on a terminal, driven as a person would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

from tests.cli.conftest import COMMAND

SECONDS = 50.0


class OnTerminal:
    """`agentkernel ARGS…` with a terminal of its own."""

    def __init__(self, *arguments: str, cwd: Path, rows: int = 24, columns: int = 80) -> None:
        self.seen = b""
        self._read = 0
        self._master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            cwd=cwd, env={**os.environ, "TERM": "xterm-256color"},
            preexec_fn=_own_terminal,
        )  # fmt: skip

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self.slave)

    def expect(self, pattern: str) -> re.Match[bytes]:
        """Waits for it, after what was found last."""
        deadline = time.monotonic() + SECONDS
        while True:
            found = re.search(pattern.encode(), self.seen[self._read :])
            if found is not None:
                self._read += found.end()
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen[self._read :]!r}"
            is_over = self.process.poll() is not None
            assert self._more(left) or not is_over, self.seen

    def _more(self, seconds: float) -> bool:
        readable, _, _ = select.select([self._master], [], [], min(seconds, 0.5))
        if not readable:
            return False
        self.seen += os.read(self._master, 1 << 16)
        return True

    def send(self, text: str | bytes) -> None:
        os.write(self._master, text.encode() if isinstance(text, str) else text)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self) -> int:
        """Its exit status; what it wrote is read to the end."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            self._more(0.2)
        while self._more(0.0):
            pass
        return self.process.returncode

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.slave) == self.before


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
