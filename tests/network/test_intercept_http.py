"""Plain HTTP through the gateway: what is passed on, and what is answered here."""

from __future__ import annotations

import pytest

from agentkernel.network.policy.model import Rule

from .interception import HOST, OK, Sandbox, Server, To, allowing, guest, says


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


GET = b"GET /path?query HTTP/1.1\r\nHost: api.example.org\r\n\r\n"


async def test_a_request_that_is_allowed_arrives_and_its_response_comes_back() -> None:
    async with Server(says(OK)).listening() as server:
        sandbox = Sandbox()
        async with guest(sandbox, To(server.port)) as client:
            response = await client.ask(GET)
        assert (response.status, response.body) == (200, b"hello")
        assert server.received == [b"GET /path?query HTTP/1.1\r\nHost: api.example.org\r\n\r\n"]
    (event,) = sandbox.events
    assert (event["kind"], event["method"], event["path"]) == ("network.allow", "GET", "/path")
    assert event["rule"] == 1
    assert sandbox.up >= len(GET) and sandbox.down >= len(OK)


async def test_a_request_that_is_denied_is_told_why_and_never_leaves() -> None:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST, methods=("GET",))))
    dialler = To(1)
    async with guest(sandbox, dialler) as client:
        response = await client.ask(
            b'POST /up"load?key=1 HTTP/1.1\r\nHost: api.example.org\r\nContent-Length: 3\r\n\r\nabc'
        )
        assert await client.rest() == b""
    assert response.status == 403
    assert response.header("content-type") == "application/json"
    assert response.header("connection") == "close"
    error = response.error
    assert error["code"] == "network_denied"
    assert (error["host"], error["port"]) == (HOST, 80)
    assert (error["method"], error["path"]) == ("POST", '/up"load')
    assert error["how"] == f"agentkernel network allow {sandbox.id} {HOST}:80"
    assert error["who_can_change"] and error["why"] and error["message"]
    assert dialler.dialled == 0
    assert sandbox.kinds() == ["network.deny"]


@pytest.mark.parametrize(
    "more",
    [b"Content-Length: 3\r\n\r\nabc", b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
    ids=["a body", "an upgrade"],
)
async def test_a_rule_for_reading_lets_nothing_be_sent(more: bytes) -> None:
    asked = GET.removesuffix(b"\r\n") + more
    for methods, status in ((("GET", "HEAD"), 403), ((), 200), (("GET", "POST"), 200)):
        sandbox = Sandbox(setting=allowing(Rule(host=HOST, methods=methods)))
        async with (
            Server(says(OK)).listening() as server,
            guest(sandbox, To(server.port)) as client,
        ):
            response = await client.ask(asked)
        assert response.status == status
        assert bool(server.received) == (status == 200)
