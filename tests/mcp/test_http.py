"""What is the daemon's `/mcp` alone: whose a session is, who is let in, and the daemon's end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from .connections import Tools, unix_client, until

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tester", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def directory(mcp_state: Path) -> Iterator[int]:
    fd = os.open(mcp_state, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture
async def http(directory: int) -> AsyncIterator[httpx2.AsyncClient]:
    async with unix_client(directory, **ACCEPT) as client:
        yield client


async def opened(http: httpx2.AsyncClient, **headers: str) -> str:
    answer = await http.post("/mcp", json=INITIALIZE, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers["mcp-session-id"]


async def test_a_session_is_its_callers(http: httpx2.AsyncClient) -> None:
    alice, bob = {"Agentkernel-Owner": "alice"}, {"Agentkernel-Owner": "bob"}
    session = {"Mcp-Session-Id": await opened(http, **alice), "MCP-Protocol-Version": "2025-11-25"}
    assert (await http.post("/mcp", json=PING, headers={**session, **alice})).status_code == 200
    for other in (bob, {}):
        for answer in (
            await http.post("/mcp", json=PING, headers={**session, **other}),
            await http.delete("/mcp", headers={**session, **other}),
        ):
            assert answer.status_code == 404
    assert (await http.post("/mcp", json=PING, headers={**session, **alice})).status_code == 200
    assert (await http.delete("/mcp", headers={**session, **alice})).status_code == 200
    assert (await http.post("/mcp", json=PING, headers={**session, **alice})).status_code == 404


async def test_an_owners_clients_are_that_owners(directory: int) -> None:
    async with (
        unix_client(directory, **{"Agentkernel-Owner": "alice"}) as http,
        Client(
            streamable_http_client("http://localhost/mcp", http_client=http),
            client_info=types.Implementation(name="tester", version="1"),
        ) as client,
    ):
        tools = Tools(client)
        made = await tools.call("create")
        path = f"/v1/sandboxes/{made['id']}"
        found = {"Agentkernel-Owner": "alice/mcp:tester"}
        assert (await http.get(path, headers=found)).status_code == 200
        for other in ("mcp:tester", "alice", "bob/mcp:tester"):
            hidden = await http.get(path, headers={"Agentkernel-Owner": other})
            assert hidden.status_code == 404
        await tools.call("remove", sandbox=made["id"])


async def test_a_host_of_another_name_is_refused(http: httpx2.AsyncClient) -> None:
    for host in ("evil.example", "localhost.evil.example", "localhost@evil.example", ""):
        answer = await http.post("/mcp", json=INITIALIZE, headers={"Host": host})
        assert answer.status_code in (400, 421), host
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:7"):
        assert (await http.post("/mcp", json=INITIALIZE, headers={"Host": host})).status_code == 200


async def test_a_web_page_is_refused(http: httpx2.AsyncClient) -> None:
    for origin in ("http://evil.example", "http://localhost", "null"):
        answer = await http.post("/mcp", json=INITIALIZE, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "policy_denied")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b"{}" * 9, 400),
    ],
)
async def test_bodies_that_are_none(http: httpx2.AsyncClient, content: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    assert (await http.post("/mcp", content=content, headers=headers)).status_code == status
    assert await opened(http)


async def test_a_body_that_is_too_large(http: httpx2.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await http.post("/mcp", content=b" " * (17 << 20), headers=headers)
    assert answer.status_code == 413


async def test_other_methods(http: httpx2.AsyncClient) -> None:
    answer = await http.put("/mcp", json=INITIALIZE)
    assert (answer.status_code, answer.json()["code"]) == (405, "invalid_input")
    assert (await http.post("/mcp/x", json=INITIALIZE)).status_code == 404


def started(state: Path) -> subprocess.Popen[str]:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "agentkernel", "serve", "--foreground"],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert daemon.stdout and "ready" in daemon.stdout.readline()
    return daemon


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def test_the_package_is_loaded_when_it_is_needed_and_the_end_is_orderly(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state = tmp_path_factory.mktemp("own")
    directory = os.open(state, os.O_PATH | os.O_DIRECTORY)
    daemon = started(state)
    try:
        async with unix_client(directory, **ACCEPT) as http:
            assert (await http.get("/v1/version")).status_code == 200
            assert "pydantic_core" not in maps(daemon.pid)
            session = await opened(http)
            assert "pydantic_core" in maps(daemon.pid)
            # A stream that a client keeps open does not hold the daemon up.
            headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
            async with http.stream("GET", "/mcp", headers=headers) as stream:
                assert stream.status_code == 200
                daemon.terminate()

                async def ended() -> bool:
                    return daemon.poll() is not None

                await until(ended)
        _, log = daemon.communicate(timeout=10)
        assert daemon.returncode == 0
        assert "internal error" not in log and "cut off" not in log and "Traceback" not in log, log
    finally:
        daemon.kill()
        daemon.communicate()
        os.close(directory)


def audited(state: Path) -> list[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "agentkernel", "audit", "--json"],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return shown.stdout.splitlines()


async def test_the_log_shows_who_it_was(http: httpx2.AsyncClient, mcp_state: Path) -> None:
    async with Client(
        streamable_http_client("http://localhost/mcp", http_client=http),
        client_info=types.Implementation(name="tester", version="1"),
    ) as client:
        await Tools(client).call("run", command="true")
    assert any(
        '"mcp:tester"' in line and '"agentkernel-mcp"' in line for line in audited(mcp_state)
    )
