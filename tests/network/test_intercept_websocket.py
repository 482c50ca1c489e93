"""WebSockets through the gateway: the handshake is judged, then both sides talk as they like."""

from __future__ import annotations

import asyncio
import os
import ssl

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from agentkernel.network.gateway.flow import Flow
from agentkernel.network.intercept.authority import authority_pem
from agentkernel.network.intercept.leaves import keep_authority_in
from agentkernel.network.intercept.serving import serve_http, serve_tls
from agentkernel.network.policy.judging import judge_connection
from agentkernel.network.policy.model import NetworkSetting, Operator, Rule, SecretBinding

from .interception import (
    HOST,
    SECONDS,
    Certificates,
    Sandbox,
    Server,
    To,
    allowing,
    guest,
    says,
    settled,
    socket_pair,
)

VALUE = b"sk-live-Zr8Qm2Xc7Vb4Nt6Lp0Ks9Wd3"
PLACEHOLDER = "sk-live-placeholder0000000000001"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


seen: list[str] = []


async def echo(connection: ServerConnection) -> None:
    assert connection.request is not None
    seen.append(connection.request.headers.get("Authorization", "nobody"))
    await connection.send(seen[-1])
    async for message in connection:
        await connection.send(message)


@pytest.mark.parametrize("tls", [False, True])
async def test_messages_pass_both_ways_and_the_handshake_gets_its_secret(
    tmp_path_factory: pytest.TempPathFactory, tls: bool
) -> None:
    before = asyncio.all_tasks()
    state = str(tmp_path_factory.mktemp("state"))
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    keep_authority_in(state)
    binding = SecretBinding(reference="u/K", env="K", placeholder=PLACEHOLDER, hosts=(HOST,))
    sandbox = Sandbox(
        setting=NetworkSetting(
            phases=allowing(Rule(host=HOST, methods=("GET", "POST"))).phases,
            secrets=(binding,) if tls else (),
        ),
        operator=Operator(upstream_ca=certificates.authority),
        secrets={"u/K": VALUE},
    )
    async with serve(echo, "127.0.0.1", 0, ssl=certificates.context() if tls else None) as server:
        port = 443 if tls else 80
        inner, outer = socket_pair()
        verdict = judge_connection(sandbox.setting.policy, None, HOST, port)
        flow = Flow(sandbox, outer, HOST, port, "tls" if tls else "http", verdict)
        dialler = To(server.sockets[0].getsockname()[1])
        served = asyncio.create_task(serve_tls(flow, dialler) if tls else serve_http(flow, dialler))
        trusting = ssl.create_default_context(cadata=authority_pem(state)) if tls else None
        async with asyncio.timeout(SECONDS):
            async with connect(
                f"{'wss' if tls else 'ws'}://{HOST}/socket",
                sock=inner,
                ssl=trusting,
                additional_headers={"Authorization": f"Bearer {PLACEHOLDER}"} if tls else {},
            ) as client:
                first = await client.recv()
                # The server got the value, and what it says of it is searched.
                assert first == (f"Bearer {PLACEHOLDER}" if tls else "nobody")
                for size in (1, 100, 100_000, 1_000_000):
                    message = os.urandom(size)
                    await client.send(message)
                    assert await client.recv() == message
                # It ends as the value begins, and nothing follows.
                await client.send(VALUE[:9])
                assert await client.recv() == VALUE[:9]
            await served
    assert seen[-1] == (f"Bearer {VALUE.decode()}" if tls else "nobody")
    assert sandbox.kinds()[0] == "network.allow"
    assert sandbox.events[0]["path"] == "/socket"
    assert ("network.secret" in sandbox.kinds()) == tls
    assert sandbox.up > 1_000_000 and sandbox.down > 1_000_000
    await settled(before)


async def test_a_websocket_that_is_not_allowed_is_answered() -> None:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST, methods=("POST",))))
    dialler = To(1)
    async with guest(sandbox, dialler) as client:
        response = await client.ask(UPGRADE)
    assert response.status == 403
    assert dialler.dialled == 0


UPGRADE = (
    b"GET /s HTTP/1.1\r\nHost: api.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def test_a_server_that_does_not_switch_is_an_ordinary_one() -> None:
    raw = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno"
    async with (
        Server(says(raw)).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        assert (await client.ask(UPGRADE)).status == 426


async def test_a_cap_ends_a_websocket() -> None:
    sandbox = Sandbox(most_down=2000)
    raw = (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        + bytes(100_000)
    )
    async with (
        Server(says(raw)).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        await client.send(UPGRADE)
        assert (await client.head())[0] == 101
        assert len(await client.rest()) < 2000
    assert sandbox.kinds() == ["network.allow", "network.limit"]
