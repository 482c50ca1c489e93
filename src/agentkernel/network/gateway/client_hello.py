"""The first message of a TLS client, read strictly: which name it asks for.

The bytes come from a guest that may want us to read another name than the server will. So whatever
servers read in different ways (two names, an extension twice, lengths that do not add up) is
refused, and only what has one meaning is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

HELLO_BYTES = 32 << 10
"""A hello may be as long: with post-quantum keys real ones have two thousand bytes."""

_KINDS_OF_RECORDS = range(20, 25)
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_RECORD_BYTES = 16384
_RECORDS = 256
"""Into so many a hello may be cut. Real ones have one or two; each has to be read over and over
while the rest is waited for."""
_SERVER_NAME = 0
_PROTOCOLS = 16
_ENCRYPTED_HELLO = 0xFE0D


class HelloError(Exception):
    """Not a ClientHello that has one meaning; the words say what is wrong with it."""


@dataclass(frozen=True)
class ClientHello:
    """`server_name` is lower-case ASCII as it was sent, not yet judged to be a name. `encrypted`:
    there is an encrypted hello (ECH) in it, or something that is made to look so (GREASE)."""

    server_name: str | None
    protocols: tuple[bytes, ...] = ()
    encrypted: bool = False


def looks_like_tls(data: bytes) -> bool:
    """True for anything a TLS server could take for a hello, or pass over before one, SSL 2's form
    included. Some take a record of another kind first: Go's an alert that only warns."""
    if data[:1] and data[0] in _KINDS_OF_RECORDS:
        return True
    return len(data) >= 3 and data[0] & 0x80 != 0 and data[2] == _CLIENT_HELLO


def parse_client_hello(data: bytes) -> ClientHello | None:
    """None: the bytes are good so far and more are needed. Raises HelloError."""
    message = _reassemble(data)
    if message is None:
        return None
    reader = _Reader(message)
    reader.take(2)  # version
    reader.take(32)  # random
    reader.vector(1, "session id", most=32)
    if len(reader.vector(2, "cipher suites")) % 2:
        raise HelloError("the cipher suites are cut in two")
    if not reader.vector(1, "compression methods"):
        raise HelloError("there is no compression method")
    if reader.empty:
        return ClientHello(server_name=None)
    extensions = _Reader(reader.vector(2, "extensions"))
    if not reader.empty:
        raise HelloError("something follows the extensions")
    return _read_extensions(extensions)


def _reassemble(data: bytes) -> bytes | None:
    """The handshake message out of as many records as it was cut into."""
    message = bytearray()
    at = 0
    for _ in range(_RECORDS):
        head = data[at : at + 5]
        if head and head[0] != _HANDSHAKE:
            raise HelloError("a record that is no handshake stands within the hello")
        if len(head) >= 2 and head[1] != 3:
            raise HelloError("the record is of no version of TLS")
        if len(head) < 5:
            return None
        length = int.from_bytes(head[3:5], "big")
        if not 1 <= length <= _RECORD_BYTES:
            raise HelloError("the record's length is wrong")
        message += data[at + 5 : at + 5 + length]
        if message and message[0] != _CLIENT_HELLO:
            raise HelloError("the handshake does not begin with a ClientHello")
        if len(message) >= 4:
            wanted = int.from_bytes(message[1:4], "big")
            if wanted > HELLO_BYTES:
                raise HelloError("the hello is too long")
            if len(message) > wanted + 4:
                raise HelloError("something follows the hello in its record")
            if len(message) == wanted + 4:
                return bytes(message[4:])
        at += 5 + length
    raise HelloError("the hello is cut into too many records")


def _read_extensions(extensions: _Reader) -> ClientHello:
    name: str | None = None
    protocols: tuple[bytes, ...] = ()
    seen = set()
    while not extensions.empty:
        kind = extensions.number(2)
        body = extensions.vector(2, "extension")
        if kind in seen:
            raise HelloError("an extension stands there twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _read_name(body)
        elif kind == _PROTOCOLS:
            protocols = _read_protocols(body)
    return ClientHello(name, protocols, _ENCRYPTED_HELLO in seen)


def _read_name(body: bytes) -> str:
    outer = _Reader(body)
    names = _Reader(outer.vector(2, "list of names"))
    if not outer.empty:
        raise HelloError("something follows the list of names")
    if names.number(1) != 0:
        raise HelloError("the server's name is of an unknown kind")
    name = names.vector(2, "name", most=255)
    if not names.empty:
        raise HelloError("there is more than one server name")
    if not name or any(not 0x21 <= byte <= 0x7E for byte in name):
        raise HelloError("the server's name holds what no name does")
    return name.decode("ascii").lower()


def _read_protocols(body: bytes) -> tuple[bytes, ...]:
    outer = _Reader(body)
    listed = _Reader(outer.vector(2, "list of protocols"))
    if not outer.empty:
        raise HelloError("something follows the list of protocols")
    found = []
    while not listed.empty:
        if not (protocol := listed.vector(1, "protocol")):
            raise HelloError("a protocol has no name")
        found.append(protocol)
    return tuple(found)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise HelloError("the hello ends too early")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int, what: str, *, most: int = 65535) -> bytes:
        length = self.number(size)
        if length > most:
            raise HelloError(f"the {what} is too long")
        return self.take(length)
