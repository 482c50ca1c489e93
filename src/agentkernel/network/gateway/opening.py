"""What a guest's connection begins with: TLS, HTTP, something else, or silence.

Names are checked in what TLS and HTTP say of themselves, so whatever a lenient server could take
for one of them counts as it, well-formed or not.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import time
from typing import Literal

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.client_hello import (
    HELLO_BYTES,
    ClientHello,
    HelloError,
    looks_like_tls,
    parse_client_hello,
)

OPENING_SECONDS = 10.0
"""The first message has to be complete that long after its first byte."""

_TURN_SECONDS = 0.01
_LONGEST_TURN_SECONDS = 0.5
_LINE_BYTES = 8192
_METHODS = (
    b"GET POST PUT HEAD DELETE PATCH OPTIONS CONNECT TRACE PRI "
    b"PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK REPORT SEARCH PURGE"
).split()
_WORD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Some servers divide a line as Python's str.split does.
_BLANK = b" \t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"
_REQUEST = re.compile(rb"[^\n]*[ \t\x0b\x0c\x1c-\x1f\x85\xa0]HTTP/[0-9]", re.IGNORECASE)

Kind = Literal["tls", "http", "other", "silent", "unclear"]


def classify(data: bytes) -> Kind | None:
    """None: more bytes are needed to say. Of TLS it only says that it is meant."""
    if looks_like_tls(data):
        return "tls"
    if len(data) < 3 and data[:1] >= b"\x80":
        return None
    # Servers skip empty lines before a request.
    text = data.lstrip(b"\r\n" + _BLANK)
    if not text:
        return None if len(data) < _LINE_BYTES else "unclear"
    word = _WORD.match(text)
    if not word or text.startswith(b"SSH-"):
        return "other"
    if word.end() == len(text):
        return None if len(text) < _LINE_BYTES else "unclear"
    if text[word.end()] not in b"\r\n" + _BLANK:
        return "other"
    if word.group().upper() in _METHODS or _REQUEST.match(text):
        return "http"
    if b"\n" in text:
        return "other"
    return None if len(text) < _LINE_BYTES else "unclear"


async def read_opening(client: socket.socket, silence: float) -> Kind:
    """Looks without taking. "silent": not one byte within `silence` seconds, or the end; "unclear":
    it did not become clear in time, and what is unclear is not let through."""
    if not await sockets.wait_readable(client, silence):
        return "silent"
    deadline = time.monotonic() + OPENING_SECONDS
    while True:
        try:
            data = sockets.peek(client, _LINE_BYTES + 64)
        except BlockingIOError:
            data = b""
        except OSError:
            return "silent"
        if data and (kind := classify(data)):
            return kind
        if not await sockets.wait_for_more(client, len(data), deadline):
            return "unclear" if data else "silent"


async def read_hello(client: socket.socket) -> ClientHello:
    """The complete hello, left where it is. Raises HelloError."""
    deadline = time.monotonic() + OPENING_SECONDS
    for turn in itertools.count():
        # Who sends byte by byte waits longer each time: it is read from its beginning every time.
        await asyncio.sleep(min(_TURN_SECONDS * turn, _LONGEST_TURN_SECONDS))
        try:
            data = sockets.peek(client, 2 * HELLO_BYTES)
        except OSError:
            raise HelloError("the connection ended within the hello") from None
        if hello := parse_client_hello(data):
            return hello
        if not await sockets.wait_for_more(client, len(data), deadline):
            break
    raise HelloError("the hello was not completed in time")
