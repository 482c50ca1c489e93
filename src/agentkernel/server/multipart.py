"""Files in a `multipart/form-data` body, read as they come; nothing of a file is held.

Preconditions: none. Every byte comes from a client: what is not as RFC 7578 says is
InvalidInputError, and no more is kept than a part's headers and the length of a boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message
from typing import Final

from agentkernel.errors import InvalidInputError

MAX_HEADER_BYTES: Final = 8 << 10
MAX_PARTS: Final = 1000
_BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")


class Part:
    """A part begins: the bytes that follow, up to None, are its content."""

    def __init__(self, name: str, filename: str | None) -> None:
        self.name = name
        self.filename = filename


def boundary_of(content_type: str) -> bytes:
    """The boundary of a body of this type."""
    message = Message()
    message["content-type"] = content_type
    if message.get_content_type() != "multipart/form-data":
        raise InvalidInputError("the body is no multipart/form-data")
    found = message.get_param("boundary", "")
    boundary = found.encode("latin-1", "replace") if isinstance(found, str) else b""
    if not _BOUNDARY.fullmatch(boundary):
        raise InvalidInputError("the Content-Type has no boundary of 1 to 70 characters")
    return boundary


class MultipartReader:
    """Feed it bytes; it gives a Part for each that begins, its content in pieces, then None."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first boundary may have nothing before it.
        self._buffer = bytearray(b"\r\n")
        self._read = self._preamble
        self._parts = 0
        self._done = False

    def feed(self, data: bytes) -> Iterator[Part | bytes | None]:
        self._buffer += data
        while (found := self._read()) is not NOTHING:
            if found is not AGAIN:
                yield found  # type: ignore[misc]

    def finish(self) -> None:
        if not self._done:
            raise InvalidInputError("the body ends before its last boundary")

    def _preamble(self) -> object:
        place = self._buffer.find(self._delimiter)
        if place < 0:
            del self._buffer[: max(0, len(self._buffer) - len(self._delimiter))]
            return NOTHING
        del self._buffer[: place + len(self._delimiter)]
        self._read = self._after_boundary
        return AGAIN

    def _after_boundary(self) -> object:
        """`--` ends the body, a line break begins a part; spaces may stand before it."""
        if self._buffer.startswith(b"--"):
            self._done = True
            self._read = self._epilogue
            return AGAIN
        line = self._buffer.find(b"\r\n")
        if line < 0:
            if len(self._buffer) > 256:
                raise InvalidInputError("a boundary is not followed by the end of its line")
            return NOTHING
        if self._buffer[:line].strip(b" \t"):
            raise InvalidInputError("a boundary is not followed by the end of its line")
        del self._buffer[:line]  # the line break stays: headers may be none
        self._read = self._headers
        return AGAIN

    def _headers(self) -> object:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEADER_BYTES:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise InvalidInputError(f"the headers of a part have over {MAX_HEADER_BYTES} bytes")
            return NOTHING
        head = bytes(self._buffer[2:end]) if end >= 2 else b""
        del self._buffer[: end + 4]
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidInputError(f"a body has at most {MAX_PARTS} parts")
        # An empty part's delimiter begins with the line break of its headers.
        self._buffer[:0] = b"\r\n"
        self._read = self._first_content
        return _part(head)

    def _first_content(self) -> object:
        if len(self._buffer) < len(self._delimiter):
            return NOTHING
        if not self._buffer.startswith(self._delimiter):
            del self._buffer[:2]
        self._read = self._content
        return AGAIN

    def _content(self) -> object:
        place = self._buffer.find(self._delimiter)
        if place == 0:
            del self._buffer[: len(self._delimiter)]
            self._read = self._after_boundary
            return None
        size = place if place > 0 else len(self._buffer) - len(self._delimiter) + 1
        if size <= 0:
            return NOTHING
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    def _epilogue(self) -> object:
        self._buffer.clear()
        return NOTHING


NOTHING: Final = object()
AGAIN: Final = object()


def _part(head: bytes) -> Part:
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon and line:
            raise InvalidInputError("a header of a part has no colon")
        if name.strip().lower() == b"content-disposition":
            return _disposition(value.strip())
    raise InvalidInputError("a part has no Content-Disposition")


_PARAMETER: Final = re.compile(rb';\s*([A-Za-z*]+)=("(?:[^"\\]|\\.)*"|[^\s;"]+)\s*')


def _disposition(value: bytes) -> Part:
    kind, _, _ = value.partition(b";")
    if kind.strip().lower() != b"form-data":
        raise InvalidInputError("the Content-Disposition of a part is form-data")
    rest, found = value[len(kind) :], {}
    while rest:
        match = _PARAMETER.match(rest)
        if match is None:
            raise InvalidInputError("the Content-Disposition of a part can't be read")
        rest = rest[match.end() :]
        found[match.group(1).lower()] = _unquoted(match.group(2))
    if b"name" not in found:
        raise InvalidInputError("a part has no name")
    return Part(found[b"name"], found.get(b"filename"))


def _unquoted(value: bytes) -> str:
    """Browsers write quotes and line breaks as %22, %0D and %0A, and mean nothing else by a %."""
    if value.startswith(b'"'):
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1])
        for code, byte in ((b"%22", b'"'), (b"%0D", b"\r"), (b"%0A", b"\n")):
            value = value.replace(code, byte)
    return value.decode("utf-8", "surrogateescape")
