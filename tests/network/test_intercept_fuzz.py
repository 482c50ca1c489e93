"""Whatever a guest or a server sends: no crash, no hang, nothing left behind."""

from __future__ import annotations

import asyncio

import uvloop
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .interception import OK, Heard, Sandbox, Server, To, guest

PARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /p?q HTTP/1.1\r\n",
        b"CONNECT api.example.org:80 HTTP/1.1\r\n",
        b"GET http://api.example.org/ HTTP/1.1\r\n",
        b"Host: api.example.org\r\n",
        b"Host: evil.org\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Expect: 100-continue\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"hello",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]
)
BYTES = st.lists(st.one_of(PARTS, st.binary(max_size=20)), max_size=12).map(b"".join)


async def through(request: bytes, response: bytes) -> list[str]:
    async def answers(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.read()
        writer.write(response)
        await writer.drain()

    sandbox = Sandbox()
    # `guest` sees to it that what serves it comes to an end, and that no task is left.
    async with (
        Server(answers).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        await client.send(request)
        client.writer.write_eof()
        await client.rest()
    return sandbox.kinds()


@settings(max_examples=150)
@given(BYTES)
@example(b"GET / HTTP/1.1\r\nHost: api.example.org\r\n\r\n" * 3)
def test_any_request_comes_to_an_end(request: bytes) -> None:
    kinds = uvloop.run(through(request, OK))
    assert set(kinds) <= {"network.allow", "network.deny", "network.fault"}


@settings(max_examples=150)
@given(BYTES)
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore")
def test_any_response_comes_to_an_end(response: bytes) -> None:
    kinds = uvloop.run(through(b"GET / HTTP/1.1\r\nHost: api.example.org\r\n\r\n", response))
    assert kinds[0] == "network.allow"
