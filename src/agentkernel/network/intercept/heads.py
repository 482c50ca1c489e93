"""The head of a request or a response: found, held to a strict reading, and read by h11.

What two programs could read differently is refused, not repaired: that is how requests are
smuggled past whoever judges them. h11 alone is more lenient (bare line feeds, folded lines, two
ways to say a length), so every head is checked as bytes first.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Literal

import h11

from agentkernel.network.intercept.wire import STALLED_SECONDS, Wire

HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0
IDLE_SECONDS = 120.0
"""How long a connection may wait for its next request."""
HEADERS = 256

Header = tuple[bytes, bytes]
Framing = Literal["none", "length", "chunked", "close"]

_HEADER = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+:[^\x00-\x08\x0a-\x1f\x7f]*")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_METHOD = re.compile(rb"[A-Z][A-Z_-]{0,31}")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_ONCE = (b"host", b"content-length", b"transfer-encoding")
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)


class Malformed(Exception):
    """Not to be read as HTTP, or in more than one way. The words are ours: they quote nothing."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass
class Head:
    """`connection` is h11's, for the rest of this one message; `size` is in bytes."""

    connection: h11.Connection
    headers: list[Header]
    version: bytes
    framing: Framing
    length: int
    size: int

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]

    def tokens(self, name: bytes) -> set[bytes]:
        """The words of a header that is a list."""
        return {
            word.strip().lower() for value in self.values(name) for word in value.split(b",")
        } - {b""}

    @property
    def keeps(self) -> bool:
        """True if whoever sent it would use the connection again."""
        return self.version >= b"1.1" and b"close" not in self.tokens(b"connection")

    def passed_on(self) -> list[Header]:
        """The headers without those that are between two neighbours only."""
        dropped = _HOP_BY_HOP | self.tokens(b"connection")
        return [(name, value) for name, value in self.headers if name.lower() not in dropped]


@dataclass
class RequestHead(Head):
    method: str
    target: bytes


@dataclass
class ResponseHead(Head):
    status: int
    reason: bytes


async def read_request_head(wire: Wire) -> RequestHead | None:
    """None if nothing comes any more. Raises Malformed, Lost, TimeoutError."""
    try:
        await wire.wait(IDLE_SECONDS)
    except TimeoutError:
        return None
    raw = await _read_raw(wire)
    return None if raw is None else parse_request_head(raw)


def parse_request_head(raw: bytes) -> RequestHead:
    """`raw`: up to its empty line and with it. Raises Malformed."""
    checked = _check(raw)
    if b"host" not in checked:
        raise Malformed("it has no header host")
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    event = _parse(connection, raw)
    if not isinstance(event, h11.Request):
        raise Malformed("the request can't be read")
    if not _METHOD.fullmatch(event.method):
        raise Malformed("its method is none: a word of capitals")
    if event.http_version not in (b"1.1", b"1.0"):
        raise Malformed("only HTTP/1.1 is spoken here")
    framing, length = _framing(checked)
    if framing in ("none", "close"):
        framing = "none"
        connection.next_event()  # the end of the message: what follows is not h11's
    if event.http_version == b"1.0" and framing == "chunked":
        raise Malformed("a chunked body needs HTTP/1.1")
    return RequestHead(
        connection=connection,
        headers=event.headers.raw_items(),
        version=event.http_version,
        framing=framing,
        length=length,
        size=len(raw),
        method=event.method.decode("ascii"),
        target=event.target,
    )


async def read_response_head(
    wire: Wire, connection: h11.Connection, method: str
) -> ResponseHead | None:
    """`connection`: the one that wrote the request. None if the other side just closed. Raises
    Malformed, Lost, TimeoutError."""
    await wire.wait(STALLED_SECONDS)
    raw = await _read_raw(wire)
    return None if raw is None else parse_response_head(raw, connection, method)


def parse_response_head(raw: bytes, connection: h11.Connection, method: str) -> ResponseHead:
    """As above, of the response to a request with `method` that `connection` has written."""
    checked = _check(raw)
    event = _parse(connection, raw)
    if not isinstance(event, h11.Response | h11.InformationalResponse):
        raise Malformed("the response can't be read")
    framing, length = _framing(checked)
    if event.status_code < 200 or event.status_code in (204, 304) or method == "HEAD":
        framing, length = "none", 0
    return ResponseHead(
        connection=connection,
        headers=event.headers.raw_items(),
        version=event.http_version,
        framing=framing,
        length=length,
        size=len(raw),
        status=event.status_code,
        reason=bytes(event.reason),
    )


async def _read_raw(wire: Wire) -> bytes | None:
    """All up to the empty line. The first byte has come: the whole has HEAD_SECONDS."""
    more = await wire.read(HEAD_SECONDS)
    if not more:
        return None
    deadline = time.monotonic() + HEAD_SECONDS
    # Some clients end the body before with an empty line too many.
    data = bytearray(more.removeprefix(b"\r\n"))
    searched = 0
    while True:
        end = data.find(b"\r\n\r\n", max(0, searched - 3))
        if 0 <= end <= HEAD_BYTES - 4:
            wire.unread(bytes(data[end + 4 :]))
            return bytes(data[: end + 4])
        if _BARE_LINE_FEED.search(data, max(0, searched - 1)):
            raise Malformed("a line ends without a carriage return")
        if len(data) >= HEAD_BYTES:
            raise Malformed(f"its head is longer than {HEAD_BYTES >> 10} KiB")
        searched = len(data)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        more = await wire.read(left)
        if not more:
            raise Malformed("it ends within its head")
        data += more


def _check(raw: bytes) -> dict[bytes, bytes]:
    """Every line, as bytes; those headers that may be there once only."""
    lines = raw[:-4].split(b"\r\n")
    if len(lines) > HEADERS:
        raise Malformed(f"it has more than {HEADERS} headers")
    if any(b"\n" in line or b"\r" in line for line in lines):
        raise Malformed("a line ends without a carriage return and a line feed")
    once: dict[bytes, bytes] = {}
    for line in lines[1:]:
        if line[:1] in (b" ", b"\t"):
            raise Malformed("a header is folded over two lines")
        if not _HEADER.fullmatch(line):
            raise Malformed("a header's name or value has a character that it can't have")
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in _ONCE:
            if name in once:
                raise Malformed(f"the header {name.decode()} is there twice")
            once[name] = value.strip(b" \t")
    return once


def _framing(once: dict[bytes, bytes]) -> tuple[Framing, int]:
    length = once.get(b"content-length")
    coding = once.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise Malformed("it has both a content-length and a transfer-encoding")
        if coding.lower() != b"chunked":
            raise Malformed("it has a transfer-encoding other than chunked")
        return "chunked", 0
    if length is not None:
        if not _DIGITS.fullmatch(length):
            raise Malformed("its content-length is not a number")
        size = int(length)
        return ("length", size) if size else ("none", 0)
    return "close", 0


def _parse(connection: h11.Connection, raw: bytes) -> object:
    try:
        connection.receive_data(raw)
        return connection.next_event()
    except h11.RemoteProtocolError:
        raise Malformed("its first line or a header can't be read") from None


def written(connection: h11.Connection, kind: type[h11.Event], **fields: Any) -> bytes:
    """An event as bytes. h11 checks once more that it is one message, as what was put into it may
    come from elsewhere. Raises Malformed."""
    try:
        return connection.send(kind(**fields)) or b""
    except h11.LocalProtocolError:
        raise Malformed("it can't be written down as HTTP") from None
