"""What guests send before it is known where to: hellos, first lines, SOCKS and CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway import opening, proxy
from agentkernel.network.gateway.client_hello import (
    ClientHello,
    HelloError,
    parse_client_hello,
)
from agentkernel.network.gateway.opening import classify
from agentkernel.network.gateway.targets import is_address, parse_authority

from .gateway_lab import hello_bytes
from .hellos import ECH, GREASE, extension, message, records, server_name

NAME = "good.example.org"


def test_hellos_that_have_one_meaning() -> None:
    assert parse_client_hello(records(message(server_name(NAME)))) == ClientHello(NAME)
    assert parse_client_hello(records(message(GREASE, server_name("GOOD.org")), 3)) == ClientHello(
        "good.org"
    )
    assert parse_client_hello(records(message())) == ClientHello(None)
    found = parse_client_hello(records(message(ECH, server_name(NAME))))
    assert found is not None and found.encrypted and found.server_name == NAME
    real = parse_client_hello(hello_bytes(NAME))
    assert real is not None and real.server_name == NAME and not real.encrypted
    # What follows in a record of its own is not the hello's.
    assert parse_client_hello(records(message(server_name(NAME))) + b"\x17\3\3") is not None


def test_a_hello_in_pieces_is_waited_for() -> None:
    whole = records(hello_bytes(NAME)[5:], 50)
    for end in range(len(whole)):
        assert parse_client_hello(whole[:end]) is None
    assert parse_client_hello(whole) is not None


BAD = {
    "two names": records(message(server_name(NAME, "twin.org"))),
    "two lists": records(message(server_name(NAME), server_name("twin.org"))),
    "other kind of name": records(message(server_name(NAME, kind=1))),
    "empty name": records(message(server_name(""))),
    "zero in the name": records(message(server_name("evil.org\0.good.org"))),
    "space in the name": records(message(server_name("evil.org good.org"))),
    "empty list": records(message(extension(0, b"\0\0"))),
    "bytes behind the extensions": records(message(server_name(NAME), tail=b"x")),
    "bytes behind the hello": records(message(server_name(NAME)) + b"\0"),
    "an alert before": b"\x15\3\1\0\2\1\0" + records(message(server_name(NAME))),
    "an alert within": records(message(server_name(NAME)), 20)[:25] + b"\x15\3\1\0\2\1\0",
    "an empty record": b"\x16\3\1\0\0",
    "SSL 2": b"\x80\x2e\1\0\2",
    "of no version": b"\x16\2\0",
    "too long": b"\x16\3\1\x40\0\1\xff\xff\xff" + bytes(16380),
    "extension cut": records(message(b"\0\0\0\x20abc")),
}


@pytest.mark.parametrize("label", BAD)
def test_hellos_that_can_be_read_in_two_ways_are_refused(label: str) -> None:
    with pytest.raises(HelloError):
        assert parse_client_hello(BAD[label]) is None, "accepted"
        raise AssertionError("waits for more")


@given(st.binary(max_size=300))
def test_no_bytes_break_the_hello(data: bytes) -> None:
    for start in (b"", b"\x16\3\1", b"\x16\3\1\0\x50\1\0\0\x4c\3\3"):
        with contextlib.suppress(HelloError):
            parse_client_hello(start + data)


@given(st.integers(0, 600), st.integers(0, 255))
def test_no_changed_byte_makes_another_name_of_a_hello(at: int, value: int) -> None:
    """Unless it is one of the name's own."""
    data = bytearray(records(message(GREASE, server_name(NAME), ECH)))
    place = data.index(NAME.encode())
    at %= len(data)
    data[at] = value
    with contextlib.suppress(HelloError):
        found = parse_client_hello(bytes(data))
        if found and found.server_name and not place <= at < place + len(NAME):
            assert found.server_name == NAME


KINDS = {
    b"\x16": "tls",
    b"\x80\x2e\x01": "tls",
    b"\x15\x03\x01\x00\x02\x01\x70": "tls",  # a warning: Go's servers wait for the hello behind it
    b"\x14": "tls",
    b"GET / HTTP/1.1\r\n": "http",
    b"get /": "http",
    b"\r\n\r\nGET / HTTP/1.1": "http",
    b"FOO / HTTP/1.1\r\n": "http",
    b"PRI * HTTP/2.0\r\n": "http",
    b"GET\t/": "http",
    b"\x0b\x0cGET\x1f/": "http",
    b"FOO\xa0/\xa0HTTP/1.1\r\n": "http",
    b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n": "other",
    b"*3\r\n$3\r\nSET\r\n": "other",
    b"HELP me\r\n": "other",
    b"\x00\x00\x00\x08\x04\xd2\x16\x2f": "other",
    b"FOO": None,
    b"FOO /": None,
    b"\r\n": None,
    b"\x80": None,
    b"A" * 9000: "unclear",
    b"FOO " + b"x" * 9000: "unclear",
}


@pytest.mark.parametrize("data", KINDS, ids=lambda data: repr(data[:24]))
def test_what_a_connection_begins_with(data: bytes) -> None:
    assert classify(data) == KINDS[data]


@given(st.binary(min_size=1, max_size=200))
def test_more_bytes_never_turn_http_or_tls_into_something_else(data: bytes) -> None:
    """What is let through as other can't have been HTTP with a byte more or less."""
    for end in range(1, len(data) + 1):
        if kind := classify(data[:end]):
            assert classify(data) == kind
            break


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Good.Example.ORG.:443", ("good.example.org", 443)),
        ("192.0.2.7:80", ("192.0.2.7", 80)),
        ("[2001:DB8::7]:80", ("2001:db8::7", 80)),
        ("good.org", ("good.org", 8)),
    ],
)
def test_targets(text: str, found: tuple[str, int]) -> None:
    assert parse_authority(text, 8) == found


@given(st.text(max_size=40))
def test_no_target_breaks_it(text: str) -> None:
    for form in (text, f"{text}:443", f"[{text}]:443"):
        try:
            host, port = parse_authority(form)
        except InvalidInputError:
            continue
        assert 1 <= port <= 65535 and host == host.lower() and host.isascii()
        assert is_address(host) or host[-1].isalnum() or host[-1] == "_"


@given(st.binary(max_size=80))
def test_no_request_to_the_proxy_breaks_it(data: bytes) -> None:
    for head in (data + b"\r\n\r\n", b"CONNECT " + data + b" HTTP/1.1\r\n\r\n"):
        with contextlib.suppress(proxy.ProxyError):
            proxy.parse_head(head)
    with contextlib.suppress(proxy.ProxyError):
        proxy.parse_socks4(b"\x04\x01\0\x50\0\0\0\1" + data + b"\0")
    with contextlib.suppress(proxy.ProxyError):
        asked = proxy.parse_socks5(b"\5\1\0\3" + bytes((len(data),)) + data + b"\0\x50")
        assert data.decode("ascii").lower().removesuffix(".").strip("[]") == asked.host or (
            ":" in asked.host
        )


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT good.org:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        b"CONNECT good.org:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT good.org:443 HTTP/1.1\r\n folded\r\n\r\n",
        b"CONNECT good.org:443 HTTP/1.1\r\nX: a\nHost: b\r\n\r\n",
        b"CONNECT  good.org:443 HTTP/1.1\r\n\r\n",
        b"CONNECT good.org:443 HTTP/2.0\r\n\r\n",
        b"CONNECT good.org:443\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://good.org/ HTTP/1.1\r\n\r\n",
        b"GET http://u@good.org/ HTTP/1.1\r\n\r\n",
    ],
)
def test_requests_to_the_proxy_that_are_refused(head: bytes) -> None:
    with pytest.raises(proxy.ProxyError):
        proxy.parse_head(head)


# --- from sockets ---


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.setblocking(False)
        yield near, far


async def test_an_opening_byte_by_byte_is_read_and_nothing_is_taken() -> None:
    hello = hello_bytes(NAME)
    async with pair() as (near, far):
        reading = asyncio.create_task(opening.read_opening(far, 5))
        near.send(hello[:1])
        assert await reading == "tls"
        waiting = asyncio.create_task(opening.read_hello(far))
        for at in range(1, len(hello)):
            near.send(hello[at : at + 1])
            await asyncio.sleep(0)
        assert (await waiting).server_name == NAME
        assert far.recv(65536) == hello


async def test_the_end_and_silence_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (near, far):
        assert await opening.read_opening(far, 0.01) == "silent"
        near.send(b"FOO")
        near.shutdown(socket.SHUT_WR)
        assert await opening.read_opening(far, 5) == "unclear"
    monkeypatch.setattr(opening, "OPENING_SECONDS", 0.1)
    async with pair() as (near, far):
        near.send(b"\x16\3\1")
        with pytest.raises(HelloError, match="in time"):
            await opening.read_hello(far)
