"""Requests that two programs could read differently: refused, each beside one that is not."""

from __future__ import annotations

import asyncio

import pytest

from agentkernel.network.intercept import heads
from agentkernel.network.intercept.wire import PIECE_BYTES
from agentkernel.network.policy.model import Rule

from .interception import HOST, OK, Heard, Sandbox, Server, To, allowing, guest, says


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


H = b"Host: api.example.org\r\n"
PLAIN = b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nabc"
CHUNKED = b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    "both lengths": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "the same length twice": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: +3\r\n\r\nabc",
    "an endless length": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Content-Length: "
    + b"9" * 30
    + b"\r\n\r\n",
    "two codings": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an odd coding": b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: xchunked\r\n\r\n",
    "a coding twice": b"POST /p HTTP/1.1\r\n"
    + H
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /p HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n",
    "a folded header": b"GET /p HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n",
    "a blank before the colon": b"GET /p HTTP/1.1\r\nHost : api.example.org\r\n\r\n",
    "a header without a colon": b"GET /p HTTP/1.1\r\n" + H + b"nothing\r\n\r\n",
    "a bare line feed": b"GET /p HTTP/1.1\r\n" + H + b"X: a\nY: b\r\n\r\n",
    "line feeds only": b"GET /p HTTP/1.1\nHost: api.example.org\n\n",
    "a bare carriage return": b"GET /p HTTP/1.1\r\n" + H + b"X: a\rY: b\r\n\r\n",
    "a NUL": b"GET /p HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n",
    "a blank first": b" GET /p HTTP/1.1\r\n" + H + b"\r\n",
    "a method that is none": b"Get1 /p HTTP/1.1\r\n" + H + b"\r\n",
    "three words": b"GET /p x HTTP/1.1\r\n" + H + b"\r\n",
    "no version": b"GET /p\r\n" + H + b"\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET /p HTTP/1.2\r\n" + H + b"\r\n",
    "no host": b"GET /p HTTP/1.1\r\nX: a\r\n\r\n",
    "no host in HTTP/1.0": b"GET /p HTTP/1.0\r\n\r\n",
    "two hosts": b"GET /p HTTP/1.1\r\n" + H + H + b"\r\n",
    "a list of hosts": b"GET /p HTTP/1.1\r\nHost: api.example.org, evil.org\r\n\r\n",
    "a host with a user": b"GET /p HTTP/1.1\r\nHost: api.example.org@evil.org\r\n\r\n",
    "a host with a path": b"GET /p HTTP/1.1\r\nHost: api.example.org/p\r\n\r\n",
    "a fragment": b"GET /p#f HTTP/1.1\r\n" + H + b"\r\n",
    "CONNECT": b"CONNECT api.example.org:80 HTTP/1.1\r\n" + H + b"\r\n",
    "another scheme": b"GET https://api.example.org/p HTTP/1.1\r\n" + H + b"\r\n",
    "a target that is none": b"GET p HTTP/1.1\r\n" + H + b"\r\n",
    "no number before a chunk": CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than said": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a signed chunk": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "a hex prefix": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a line feed in a chunk's extension": CHUNKED + b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "an endless extension": CHUNKED + b"3;" + b"a" * 2 * PIECE_BYTES + b"\r\nabc\r\n0\r\n\r\n",
    "too long a head": b"GET /p HTTP/1.1\r\n" + H + b"X: " + b"a" * heads.HEAD_BYTES + b"\r\n\r\n",
    "too many headers": b"GET /p HTTP/1.1\r\n" + H + b"X: a\r\n" * 300 + b"\r\n",
}

PASSED = {
    "a length": PLAIN,
    "chunks": CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "a chunk's extension": CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n",
    "an empty line before": b"\r\n" + PLAIN,
    "the host's port": b"GET /p HTTP/1.1\r\nHost: api.example.org:80\r\n\r\n",
    "capitals": b"GET /p HTTP/1.1\r\nhOST: API.Example.ORG\r\n\r\n",
    "its last dot": b"GET /p HTTP/1.1\r\nHost: api.example.org.\r\n\r\n",
    "the whole address": b"GET http://api.example.org/p HTTP/1.1\r\n" + H + b"\r\n",
    "HTTP/1.0": b"GET /p HTTP/1.0\r\n" + H + b"\r\n",
    "a long head": b"GET /p HTTP/1.1\r\n" + H + b"X: " + b"a" * 60000 + b"\r\n\r\n",
}

ELSEWHERE = {
    "another host": b"GET /p HTTP/1.1\r\nHost: evil.org\r\n\r\n",
    "another port": b"GET /p HTTP/1.1\r\nHost: api.example.org:81\r\n\r\n",
    "a longer name": b"GET /p HTTP/1.1\r\nHost: api.example.org.evil.org\r\n\r\n",
    "an address": b"GET /p HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "another address than the host": b"GET http://evil.org/p HTTP/1.1\r\n" + H + b"\r\n",
    "another host than the address": b"GET http://api.example.org/p HTTP/1.1\r\n"
    b"Host: evil.org\r\n\r\n",
}


async def after_body(heard: Heard, writer: asyncio.StreamWriter) -> None:
    """Answers once it has read all, so that a body that is refused comes to light first."""
    data = await heard.head()
    if b"chunked" in data:
        while not data.endswith(b"0\r\n\r\n"):
            data += await heard.exactly(1)
    writer.write(OK)
    await writer.drain()


async def one(raw: bytes) -> tuple[int, Sandbox, Server, To]:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST), Rule(host="evil.org")))
    async with Server(after_body).listening() as server:
        dialler = To(server.port)
        async with guest(sandbox, dialler) as client:
            response = await client.ask(raw)
            await client.writer.drain()
    return response.status, sandbox, server, dialler


@pytest.mark.parametrize("name", REFUSED)
async def test_what_can_be_read_in_two_ways_is_refused(name: str) -> None:
    status, sandbox, server, _ = await one(REFUSED[name])
    assert status == 400
    assert sandbox.kinds()[-1] == "network.deny"
    assert sandbox.events[-1]["reason"]
    # At most a head has left, of a request that was never whole.
    assert not b"".join(server.received).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("name", PASSED)
async def test_what_has_one_reading_passes(name: str) -> None:
    status, sandbox, server, _ = await one(PASSED[name])
    assert status == 200
    assert sandbox.kinds() == ["network.allow"]
    first = bytes(server.received[0]).split(b"\r\n")[0]
    assert first in (b"POST /p HTTP/1.1", b"GET /p HTTP/1.1")


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_a_request_for_another_place_than_the_connections_is_denied(name: str) -> None:
    """Even where that other place is allowed: it has to be reached as itself."""
    status, sandbox, _, dialler = await one(ELSEWHERE[name])
    assert status == 403
    assert sandbox.kinds() == ["network.deny"]
    assert dialler.dialled == 0


async def test_a_second_request_for_another_host_is_denied() -> None:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST), Rule(host="evil.org")))
    async with Server(says(OK, times=2)).listening() as server:
        async with guest(sandbox, To(server.port)) as client:
            own = b"GET /p HTTP/1.1\r\n" + H + b"\r\n"
            await client.send(own + own + b"GET /q HTTP/1.1\r\nHost: evil.org\r\n\r\n")
            assert [(await client.response()).status for _ in range(3)] == [200, 200, 403]
            assert await client.rest() == b""
        assert b"evil" not in b"".join(server.received)
    assert sandbox.kinds() == ["network.allow", "network.allow", "network.deny"]


async def test_every_request_is_judged_by_the_setting_as_it_is_then() -> None:
    sandbox = Sandbox()
    own = b"GET /p HTTP/1.1\r\n" + H + b"\r\n"
    async with (
        Server(says(OK, times=3)).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        assert (await client.ask(own)).status == 200
        sandbox.setting = allowing(Rule(host=HOST, methods=("POST",)))
        assert (await client.ask(own)).status == 403


async def test_what_stands_between_neighbours_only_is_not_passed_on() -> None:
    sandbox = Sandbox()
    async with Server(says(OK)).listening() as server:
        async with guest(sandbox, To(server.port)) as client:
            response = await client.ask(
                b"GET /p HTTP/1.1\r\n" + H + b"Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\n"
                b"Keep-Alive: 5\r\nProxy-Connection: close\r\nProxy-Authorization: Basic eHg=\r\n"
                b"TE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\nX-Other: 2\r\n\r\n"
            )
        assert response.status == 200
        assert server.received == [b"GET /p HTTP/1.1\r\n" + H + b"X-Other: 2\r\n\r\n"]


async def test_a_path_with_dots_gets_past_no_rule_by_path() -> None:
    setting = allowing(Rule(host=HOST, paths=("/v1/*",)))
    for path, status in ((b"/v1/a", 200), (b"/v1/../admin", 403), (b"/v1/%2e%2e/admin", 403)):
        async with (
            Server(says(OK)).listening() as server,
            guest(Sandbox(setting=setting), To(server.port)) as client,
        ):
            response = await client.ask(b"GET " + path + b" HTTP/1.1\r\n" + H + b"\r\n")
        assert response.status == status, path
