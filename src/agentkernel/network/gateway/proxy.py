"""The gateway as an explicit proxy, for programs that ask for one: HTTP and SOCKS at one address.

What a client says here is only where it wants to go. The connection is then judged and looked at as
if it had been dialled directly, so a proxy is no way past anything.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Literal

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.targets import is_address, parse_authority
from agentkernel.network.policy.names import canonical_host, canonical_name, parse_address

HANDSHAKE_SECONDS = 10.0
HEAD_BYTES = 16 << 10
HEADERS = 100

_CONNECT = re.compile(rb"CONNECT ([!-~]{1,512}) HTTP/1\.[01]")
_ABSOLUTE = re.compile(rb"[A-Z]{1,20} http://([!-~]{1,8192}) HTTP/1\.[01]")
_HEADER = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*")
_SOCKS_NAME = 3


class ProxyError(Exception):
    """What the client said can't be carried out; `reply` is what it is told before the end."""

    def __init__(self, words: str, reply: bytes = b"") -> None:
        super().__init__(words)
        self.words = words
        self.reply = reply


@dataclass(frozen=True)
class Asked:
    """Where a client wants to go. `form`: "absolute" is an HTTP request that is still unread; else
    `accept` is what tells the client to go on, `refuse` that it may not ("connect": an HTTP
    answer's head and body go instead)."""

    form: Literal["connect", "absolute", "socks"]
    host: str
    port: int
    accept: bytes = b""
    refuse: bytes = b""


async def read_request(client: socket.socket) -> Asked:
    """The proxy's part of the conversation, as far as where to. Raises ProxyError, OSError,
    TimeoutError."""
    first = await sockets.peek_exactly(client, 1, HANDSHAKE_SECONDS)
    if not first:
        raise ProxyError("the client said nothing")
    if first == b"\x05":
        return await _read_socks5(client)
    if first == b"\x04":
        return await _read_socks4(client)
    head = await sockets.peek_until(client, b"\r\n\r\n", HEAD_BYTES, HANDSHAKE_SECONDS)
    if head is None:
        raise ProxyError("what the client said is no request to a proxy", bad_request())
    asked = parse_head(head)
    if asked.form == "connect":
        sockets.consume(client, len(head))
    return asked


def bad_request() -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def parse_head(head: bytes) -> Asked:
    """A CONNECT or an absolute-form request, up to its empty line. Raises ProxyError."""
    lines = head[:-4].split(b"\r\n")
    if len(lines) > HEADERS:
        raise ProxyError("the request has too many headers", bad_request())
    # What follows the headers of a CONNECT is the tunnel's: so none may be read in two ways.
    if not all(_HEADER.fullmatch(line) for line in lines[1:]):
        raise ProxyError("a header can't be read", bad_request())
    try:
        if found := _CONNECT.fullmatch(lines[0]):
            target = parse_authority(found[1].decode("ascii"))
            _refuse_body(lines[1:])
            accept = b"HTTP/1.1 200 Connection established\r\n\r\n"
            return Asked("connect", *target, accept=accept)
        if found := _ABSOLUTE.fullmatch(lines[0]):
            authority = re.split(rb"[/?#]", found[1], maxsplit=1)[0]
            return Asked("absolute", *parse_authority(authority.decode("ascii"), 80))
    except InvalidInputError as exc:
        raise ProxyError(exc.message, bad_request()) from None
    raise ProxyError("the request is neither a CONNECT nor for an http:// address", bad_request())


def _refuse_body(headers: list[bytes]) -> None:
    for line in headers:
        name, _, value = line.partition(b":")
        length = name.lower() == b"content-length" and value.strip() != b"0"
        if length or name.lower() == b"transfer-encoding":
            raise InvalidInputError("a CONNECT has no body")


def _socks5(code: int) -> bytes:
    return bytes((5, code, 0, 1)) + bytes(6)


async def _read_socks5(client: socket.socket) -> Asked:
    greeting = await _exactly(client, 2)
    methods = (await _exactly(client, 2 + greeting[1]))[2:]
    sockets.consume(client, 2 + greeting[1])
    if 0 not in methods:
        raise ProxyError("the SOCKS client wants a password, and there is none", b"\x05\xff")
    await sockets.send_all(client, b"\x05\x00")
    head = await _exactly(client, 5)
    size = {1: 10, 4: 22, _SOCKS_NAME: 7 + head[4]}.get(head[3])
    if head[0] != 5 or head[2] != 0 or size is None:
        raise ProxyError("the SOCKS request can't be read", _socks5(1))
    request = await _exactly(client, size)
    sockets.consume(client, size)
    return parse_socks5(request)


def parse_socks5(request: bytes) -> Asked:
    """A whole request of SOCKS 5. Raises ProxyError."""
    if request[1] != 1:
        raise ProxyError("only connections out are possible over SOCKS", _socks5(7))
    body, port = request[4:-2], int.from_bytes(request[-2:], "big")
    try:
        if request[3] == _SOCKS_NAME:
            host = _socks_name(body[1:])
        else:
            family = socket.AF_INET if request[3] == 1 else socket.AF_INET6
            host = str(parse_address(socket.inet_ntop(family, body)))
    except InvalidInputError as exc:
        raise ProxyError(exc.message, _socks5(2)) from None
    if not port:
        raise ProxyError("port 0 is none", _socks5(2))
    return Asked("socks", host, port, accept=_socks5(0), refuse=_socks5(2))


def _socks_name(name: bytes) -> str:
    """Every byte counts: a NUL within would end the name for some readers, and not for others."""
    try:
        text = name.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidInputError("the name is not ASCII") from None
    host = canonical_host(text)
    return host if is_address(host) else canonical_name(text)


async def _read_socks4(client: socket.socket) -> Asked:
    head = await _exactly(client, 8)
    request = await _until_zero(client, 8)
    if _names_host(head):
        request = await _until_zero(client, len(request))
    sockets.consume(client, len(request))
    return parse_socks4(request)


def _names_host(head: bytes) -> bool:
    """True for SOCKS 4a: an address that can't be stands for a name behind the user's."""
    return head[4:7] == bytes(3) and head[7] != 0


async def _until_zero(client: socket.socket, start: int) -> bytes:
    """All up to the next zero behind `start`."""
    have = start
    while have < start + 256:
        data = await _exactly(client, have + 1)
        if data[-1] == 0:
            return data
        have += 1
    raise ProxyError("the SOCKS request is too long", _socks4(0x5B))


def _socks4(code: int) -> bytes:
    return bytes((0, code)) + bytes(6)


def parse_socks4(request: bytes) -> Asked:
    """A whole request of SOCKS 4 or 4a. Raises ProxyError."""
    refuse = _socks4(0x5B)
    if len(request) < 9 or request[1] != 1:
        raise ProxyError("only connections out are possible over SOCKS", refuse)
    port = int.from_bytes(request[2:4], "big")
    try:
        if _names_host(request):
            _, _, name = request[8:-1].partition(b"\0")
            host = _socks_name(name)
        else:
            host = str(parse_address(socket.inet_ntop(socket.AF_INET, request[4:8])))
    except InvalidInputError as exc:
        raise ProxyError(exc.message, refuse) from None
    if not port:
        raise ProxyError("port 0 is none", refuse)
    return Asked("socks", host, port, accept=_socks4(0x5A), refuse=refuse)


async def _exactly(client: socket.socket, count: int) -> bytes:
    data = await sockets.peek_exactly(client, count, HANDSHAKE_SECONDS)
    if data is None or len(data) < count:
        raise ProxyError("the client stopped within its request")
    return data
