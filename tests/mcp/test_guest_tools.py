"""The official client and a sandbox's own tools: what it finds and calls is what it expects."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agentkernel.agents.mcp_servers import servers_for
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.model import TOOLS_GREETING
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.server.app import Service
from agentkernel.server.guest_door import GuestDoor

SECONDS = 30.0


@contextlib.asynccontextmanager
async def door(kernel: Kernel, path: Path) -> AsyncIterator[str]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A test's directory has a longer name than a socket's address may have.
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY)
    name = f"/proc/self/fd/{directory}/tools.sock"
    listener.bind(name)
    listener.setblocking(False)
    guests = GuestDoor(Service(kernel), listener)
    await guests.start()
    try:
        yield name
    finally:
        await guests.stop()
        listener.close()
        os.close(directory)


@contextlib.asynccontextmanager
async def relayed(name: str, greeting: bytes) -> AsyncIterator[str]:
    """An address that leads to the door as the gateway leads there."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(name)
        far_writer.write(greeting)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


@pytest.fixture
async def kernel(state_dir: Path, tmp_path: Path) -> AsyncIterator[Kernel]:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    async with Kernel(path) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def test_the_official_client(kernel: Kernel, tmp_path: Path) -> None:
    rules = list(servers_for([], sandbox_tools=True).rules)
    record = await kernel.create(SandboxSpec(network=NetworkRequest(presets=[], rules=rules)))
    greeting = f"{TOOLS_GREETING} {record.id}\n".encode()
    async with (
        asyncio.timeout(SECONDS),
        door(kernel, tmp_path) as name,
        relayed(name, greeting) as address,
        httpx2.AsyncClient(timeout=SECONDS) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "network_why" in tools and tools["job_list"].annotations
        found = await client.call_tool("network_why", {"host": "a.example"})
        assert found.structured_content and found.structured_content["outcome"] == "deny"
        started = await client.call_tool("job_start", {"command": "echo hello"})
        assert started.structured_content
        failed = await client.call_tool("job_output", {"job": "none"})
        assert failed.is_error


GREETINGS = (
    b"", b"\n", b"agentkernel-tools/1 \n", b"agentkernel-tools/2 {id}\n", b"x" * 4096,
    b"agentkernel-tools/1 {id} {id}\n", b"agentkernel-tools/1 ../{id}\n", b"GET / HTTP/1.1\r\n",
)  # fmt: skip


async def test_who_does_not_say_whose_it_is(kernel: Kernel, tmp_path: Path) -> None:
    rules = list(servers_for([], sandbox_tools=True).rules)
    record = await kernel.create(SandboxSpec(network=NetworkRequest(presets=[], rules=rules)))
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    request = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def say(first: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(name)
        try:
            with contextlib.suppress(OSError):
                writer.write(first + request)
                return await reader.read(4096)
            return b""
        finally:
            writer.close()

    async with asyncio.timeout(SECONDS), door(kernel, tmp_path) as name:
        for greeting in GREETINGS:
            told = greeting.replace(b"{id}", record.id.encode())
            assert b"result" not in await say(told), greeting
        good = f"{TOOLS_GREETING} {record.id}\n".encode()
        assert b"200 OK" in await say(good)  # the control
