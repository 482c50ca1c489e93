"""Previews: requests of any client, answers of any guest, ports as anybody writes them."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import strategies as st

from agentkernel.config.addresses import joined
from agentkernel.config.ports import parse_port
from agentkernel.guest.tcp import GuestConnection
from agentkernel.server.door import Entrance
from agentkernel.server.preview_heads import Target as Preview
from agentkernel.server.preview_relay import Exchange
from agentkernel.server.previews import Previews

from .making import words
from .target import Target

_ID = "a" * 20
_API = f"ak_{_ID}_{'0' * 64}".encode()
_OWN = b"akp_" + b"0" * 48
_values: dict[bytes, list[bytes]] = {
    b"host": [
        b"8000-" + _ID.encode() + b".localhost:1",
        b"localhost",
        b"8000-a.localhost",
        b"\xff",
    ],
    b"x-agentkernel-preview": [b"8000-" + _ID.encode(), b"99999-" + _ID.encode(), b"8000"],
    b"authorization": [b"Bearer " + _API, b"Basic x"],
    b"cookie": [b"ak_preview=" + _OWN + b"; a=b", b";;=", b"a=" + _API],
    b"sec-websocket-protocol": [b"chat, bearer." + _API],
    b"connection": [b"close, x-hop", b"Upgrade", b",,"],
    b"upgrade": [b"websocket", b"h2c"],
    b"transfer-encoding": [b"chunked", b"gzip", b"Chunked "],
    b"content-length": [b"0", b"5", b"+5", b"5, 5", b"9" * 30],
    b"x-hop": [b"1"],
    b"referer": [b"http://x/?ak_preview_token=1"],
}
_headers = st.lists(
    st.sampled_from(sorted(_values)).flatmap(
        lambda name: st.tuples(
            st.just(name), st.one_of(st.sampled_from(_values[name]), st.binary(max_size=12))
        )
    ),
    max_size=8,
)
_paths = st.one_of(
    st.sampled_from([b"/", b"/preview/" + _ID.encode() + b"/8000/x", b"/preview//8000/", b"*"]),
    st.binary(max_size=20),
)


def _scope(headers: list[tuple[bytes, bytes]], path: bytes, query: bytes) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "scheme": "http", "headers": headers, "state": {},
            "raw_path": path, "query_string": query, "client": ("192.0.2.1", 1)}  # fmt: skip


async def _nobody(*_: object) -> Any:
    raise AssertionError("nobody is asked")


def pass_on(given: tuple[list[tuple[bytes, bytes]], bytes, bytes]) -> None:
    """What reaches a guest has one host, one length at most, and no credential of ours."""
    headers, path, query = given
    service = cast(Any, SimpleNamespace(preview_domain="localhost"))
    previews = Previews(_nobody, service, cast(Entrance, None))
    scope = _scope(headers, path, query)
    target = previews._target(scope)
    if target is None:
        return
    assert (target.id, target.port) == (_ID, 8000)
    request = Exchange(target, scope, _nobody, _nobody, 1.0)._request
    names = [name for name, _ in request.headers]
    assert names.count(b"host") == 1 and names.count(b"connection") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    text = b"\n".join(name + b":" + value for name, value in request.headers)
    assert _API not in text and _OWN not in text and b"h2c" not in text
    assert not re.search(rb"[\r\0]", text)


class _Guest:
    """A connection inside that says what it was given, piece by piece, and ends."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def write(self, data: bytes) -> None:
        pass


def answer(pieces: list[bytes]) -> None:
    """Whatever a guest says is a whole answer, one that is cut, or a typed error."""
    sent: list[Any] = []
    requested = False

    async def receive() -> Any:
        nonlocal requested
        if requested:
            await asyncio.Event().wait()
        requested = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = _scope([(b"host", b"localhost")], b"/", b"")
    for way in ("host", "path"):
        sent.clear()
        requested = False
        exchange = Exchange(Preview(_ID, 8000, cast(Any, way), b"/"), scope, receive, send, 5.0)
        try:
            asyncio.run(exchange.run(cast(GuestConnection, _Guest(pieces))))
            assert sent[0]["status"] >= 200 and not sent[-1].get("more_body")
        finally:
            assert exchange.begun == bool(sent)
            told = {name for name, _ in (sent[0]["headers"] if sent else ())}
            assert not {b"transfer-encoding", b"upgrade", b"strict-transport-security"} & told
            if way == "path" and sent:
                assert b"content-security-policy" in told and b"set-cookie" not in told


_lines = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 304 x\r\n", b"HTTP/1.1 101 x\r\n", b"HTTP/1.1 100 x\r\n",
        b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Set-Cookie: a; Domain=b\r\n",
        b"Location: http://localhost:8000\r\n", b"Connection: x\r\n", b"Upgrade: websocket\r\n",
        b"\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"abc", b" folded\r\n",
        b"Strict-Transport-Security: 1\r\n",
    ]
)  # fmt: skip


def read_port(text: str) -> None:
    """One meaning, which can be written down again."""
    mapping = parse_port(text)
    assert 1 <= mapping.port <= 65535 and 0 <= mapping.host_port <= 65535
    where = "preview" if mapping.address is None else joined(mapping.address, mapping.host_port)
    again = parse_port(f"{where}:{mapping.port}")
    assert (again.address, again.port) == (mapping.address, mapping.port)
    assert again.widening == mapping.widening


TARGETS = [
    Target("preview-requests", st.tuples(_headers, _paths, st.binary(max_size=20)), pass_on),
    Target(
        "preview-answers",
        st.lists(st.one_of(_lines, _lines, st.binary(max_size=20)), max_size=10),
        answer,
    ),
    Target(
        "ports",
        st.one_of(words, st.text(alphabet="0123456789.:[]preview", max_size=24)),
        read_port,
    ),
]
