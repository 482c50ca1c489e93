"""What goes over the virtio port: one byte of kind, four of length, the body.

The guest says HELLO (JSON: what it is) when it is up, then answers each REQUEST (JSON: argv, user,
env, cwd, timeout) with any number of STDOUT and STDERR and one DONE (JSON: status, timed_out).
Used on both sides: only the standard library.
"""

from __future__ import annotations

import struct
from typing import Protocol

HELLO, REQUEST, STDOUT, STDERR, DONE = range(5)
_HEADER = struct.Struct(">BI")
_LONGEST = 1 << 20


class Stream(Protocol):
    """An unbuffered file or socket."""

    def read(self, size: int, /) -> bytes | None: ...
    def write(self, data: memoryview, /) -> int | None: ...


def send(stream: Stream, kind: int, body: bytes) -> None:
    data = memoryview(_HEADER.pack(kind, len(body)) + body)
    while data:
        data = data[stream.write(data) or 0 :]


def receive(stream: Stream) -> tuple[int, bytes]:
    """The next frame. EOFError if the other side is gone."""
    kind, length = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if length > _LONGEST:
        raise ValueError(f"a frame of {length} bytes")
    return kind, _exactly(stream, length)


def _exactly(stream: Stream, count: int) -> bytes:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise EOFError("the other side of the port is gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
