"""`/mcp` over TCP: the official client with a token, and the names and pages that are let in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agentkernel import Host, Sandbox, Transport

from .connections import Tools
from .test_http import ACCEPT, INITIALIZE

NAME, PAGE = "box.example", "https://app.example"


class Served:
    """A daemon that listens, and a token for it."""

    def __init__(self, state: Path) -> None:
        words = ["serve", "--foreground", "--listen", "127.0.0.1:0"]
        words += ["--allow-host", NAME, "--allow-origin", PAGE]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentkernel", *words],
            env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout
        self.url = self.process.stdout.readline().partition(" and ")[2].partition(",")[0]
        self.local = Transport(str(state))
        made = Host(transport=self.local).tokens.create("one")
        self.headers = {"Authorization": f"Bearer {made.token}", **ACCEPT}

    def end(self) -> None:
        for sandbox in Sandbox.list(owner="*", transport=self.local):
            sandbox.remove()
        self.local.close()
        self.process.terminate()
        assert self.process.wait(30) == 0
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    daemon = Served(tmp_path_factory.mktemp("mcp-network"))
    yield daemon
    daemon.end()


async def test_a_client_with_a_token(served: Served) -> None:
    async with (
        httpx2.AsyncClient(headers=served.headers, timeout=30) as http,
        Client(
            streamable_http_client(f"{served.url}/mcp", http_client=http),
            client_info=types.Implementation(name="tester", version="1"),
        ) as client,
    ):
        tools = Tools(client)
        made = await tools.call("create", name="far")
        assert made["name"] == "far"
        assert (await tools.call("exec", sandbox="far", command="echo $((6*7))"))[
            "stdout"
        ] == "42\n"
    (found,) = Sandbox.list(owner="*", transport=served.local)
    assert found.info.owner == "token:one/mcp:tester"
    assert Sandbox.list(transport=served.local) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": NAME}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": PAGE}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Authorization": "Bearer ak_x"}, 401),
        ({"Agentkernel-Owner": "local"}, 403),
    ],
)
async def test_who_is_let_in(served: Served, headers: dict[str, str], status: int) -> None:
    async with httpx2.AsyncClient(headers=served.headers, timeout=30) as http:
        answer = await http.post(f"{served.url}/mcp", json=INITIALIZE, headers=headers)
        assert answer.status_code == status, answer.text
