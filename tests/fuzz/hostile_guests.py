"""What a guest may send into its network: DNS, hellos, first lines, a proxy's requests."""

from __future__ import annotations

from typing import Any

import h11
from hypothesis import strategies as st

from agentkernel.network.gateway.client_hello import HELLO_BYTES, HelloError, parse_client_hello
from agentkernel.network.gateway.dns import answer_query
from agentkernel.network.gateway.opening import classify
from agentkernel.network.gateway.proxy import ProxyError, parse_head, parse_socks4, parse_socks5
from agentkernel.network.gateway.targets import parse_authority
from agentkernel.network.intercept.answers import Answer
from agentkernel.network.intercept.heads import (
    Malformed,
    parse_request_head,
    parse_response_head,
    written,
)
from agentkernel.network.intercept.places import check_place
from agentkernel.network.policy.names import canonical_host

from .making import damaged, words
from .target import Target

_HELLO = bytes.fromhex(
    "16030100650100006103030000000000000000000000000000000000000000000000000000000000000000"
    "000002130101000036000000150013000010676f6f642e6578616d706c652e6f7267001000050003026832"
    "fe0d000400000000002b00020304000a00040002001d"
)
_QUERIES = [
    bytes.fromhex("123401000001000000000000076578616d706c65036f72670000010001"),
    bytes.fromhex(
        "123401200001000000000001076578616d706c65036f726700001c00010000291000000000000000"
    ),
    bytes.fromhex(
        "1234010000010000000000000130013102313803313938 07696e2d61646472046172706100000c0001"
    ),
]
_HEADS = [
    b"CONNECT good.example.org:443 HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
    b"GET http://good.example.org:80/x?y HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
    b"CONNECT [2001:db8::7]:443 HTTP/1.0\r\n\r\n",
]
_REQUESTS = [
    *_HEADS,
    b"POST /x?y HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 3\r\nX: a, b\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nHost: good.example.org:80\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: Good.Example.org\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
]
_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: close\r\nSet-Cookie: a=b; c\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
]
_SOCKS5 = [
    b"\5\1\0\3\x10good.example.org\1\xbb",
    b"\5\1\0\1\x7f\0\0\1\0\x50",
    b"\5\1\0\4" + bytes(15) + b"\1\0\x50",
]
_SOCKS4 = [b"\4\1\0\x50\0\0\0\1me\0good.example.org\0", b"\4\1\0\x50\x7f\0\0\1\0"]


def _some(samples: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=200), damaged(st.sampled_from(samples)))


def read_hello(data: bytes) -> None:
    hello = parse_client_hello(data)
    if hello is None:
        assert len(data) < 3 * HELLO_BYTES
    elif hello.server_name is not None:
        canonical_host(hello.server_name)


def answer(packet: bytes) -> None:
    for stream in (False, True):
        said = answer_query(packet, lambda name: "198.18.1.0", lambda address: "a.b", stream=stream)
        assert said is None or (len(said) <= 1232 and said[:2] == packet[:2])


def read_opening(data: bytes) -> None:
    """What was clear stays so when more comes."""
    kind = classify(data)
    assert kind is None or classify(data + b" HTTP/1.1\r\n") == kind


def read_head(data: bytes) -> None:
    head = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    asked = parse_head(head)
    assert canonical_host(asked.host) == asked.host


def read_socks5(data: bytes) -> None:
    """As it comes from the socket: of the length that its own bytes say."""
    sizes = {1: 10, 4: 22, 3: 7 + data[4] if len(data) > 4 else 0}
    if len(data) > 4 and len(data) == sizes.get(data[3]):
        asked = parse_socks5(data)
        assert canonical_host(asked.host) == asked.host


def read_socks4(data: bytes) -> None:
    asked = parse_socks4(data + b"\0")
    assert canonical_host(asked.host) == asked.host


def read_target(text: str) -> None:
    host, _ = parse_authority(text, 80)
    assert canonical_host(host) == host


def read_request(data: bytes) -> None:
    """What is passed on of it is read as the same request again."""
    head = parse_request_head(_whole(data))
    try:
        target, _ = check_place(head, "good.example.org", 80, tls=False)
    except Answer:
        return
    towards = h11.Connection(h11.CLIENT)
    fields: dict[str, Any] = {"method": head.method, "target": target, "headers": head.passed_on()}
    if head.framing == "chunked":
        fields["headers"].append((b"Transfer-Encoding", b"chunked"))
    again = parse_request_head(written(towards, h11.Request, **fields))
    assert (again.method, again.target) == (head.method, target)
    assert (again.framing, again.length) == (head.framing, head.length)
    assert again.passed_on() == head.passed_on()


def read_response(data: bytes) -> None:
    towards = h11.Connection(h11.CLIENT)
    headers = [(b"Host", b"good.example.org")]
    written(towards, h11.Request, method="GET", target=b"/", headers=headers)
    head = parse_response_head(_whole(data), towards, "GET")
    assert head.framing in ("none", "length", "chunked", "close")
    assert (head.length > 0) == (head.framing == "length")


def _whole(data: bytes) -> bytes:
    return data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


TARGETS = [
    Target("request-heads", _some(_REQUESTS), read_request, also=(Malformed,)),
    Target("response-heads", _some(_RESPONSES), read_response, also=(Malformed,)),
    Target("hellos", _some([_HELLO]), read_hello, also=(HelloError,)),
    Target("queries", _some(_QUERIES), answer),
    Target("openings", _some([*_HEADS, _HELLO, b"\r\nFOO / HTTP/1.1\r\n"]), read_opening),
    Target("proxy-heads", _some(_HEADS), read_head, also=(ProxyError,)),
    Target("socks5", _some(_SOCKS5), read_socks5, also=(ProxyError,)),
    Target("socks4", _some(_SOCKS4), read_socks4, also=(ProxyError,)),
    Target("targets", st.one_of(words, words.map(lambda w: f"{w}:443")), read_target),
]
