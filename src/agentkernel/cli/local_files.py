"""Files and streams of this machine at the command line's end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from agentkernel.errors import InvalidInputError

_PIECE = 1 << 18


@contextlib.contextmanager
def local_errors(path: str) -> Iterator[None]:
    """A failure here in our words; one from the daemon or inside a sandbox has its own."""
    try:
        yield
    except OSError as exc:
        if hasattr(exc, "code"):
            raise
        where = exc.filename if isinstance(exc.filename, str) else path
        raise InvalidInputError(f"{where}: {exc.strerror}") from None


def read_all(fd: int) -> Iterator[bytes]:
    while data := os.read(fd, _PIECE):
        yield data


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
