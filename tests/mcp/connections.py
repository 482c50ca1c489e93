"""Connections of the official client to `agentkernel mcp` and to the daemon's `/mcp`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

SECONDS = 30.0
OWNERS = ("mcp:tester", "mcp:other", "mcp:third")
Connect = Callable[..., AbstractAsyncContextManager["Tools"]]


class Tools:
    """A connection whose calls give structured content, or fail the test."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.result(name, **arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def result(self, name: str, /, **arguments: Any) -> types.CallToolResult:
        result = await self.client.call_tool(name, arguments)
        assert isinstance(result, types.CallToolResult)
        return result

    async def error(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """What a call failed with, as programs see it; models see it as text."""
        result = await self.result(name, **arguments)
        assert result.is_error and result.meta is not None, result
        body: dict[str, Any] = result.meta["agentkernel/error"]
        assert isinstance(result.content[0], types.TextContent)
        assert result.content[0].text.startswith(f"{body['code']}: {body['message']}")
        return body

    async def text(self, name: str, /, **arguments: Any) -> str:
        result = await self.result(name, **arguments)
        assert not result.is_error
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        return "\n".join(texts)


@contextmanager
def connections(state: Path, transport: str) -> Iterator[Connect]:
    # A test's directory has a longer name than a socket's address may have.
    directory = os.open(state, os.O_PATH | os.O_DIRECTORY)

    @asynccontextmanager
    async def connect(
        name: str = "tester", mode: str = "auto", flags: tuple[str, ...] = ()
    ) -> AsyncIterator[Tools]:
        info = types.Implementation(name=name, version="1")
        if transport == "stdio":
            server = StdioServerParameters(
                command=sys.executable,
                args=["-m", "agentkernel", "mcp", *flags],
                env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
            )
            async with Client(server, client_info=info, mode=mode) as client:
                yield Tools(client)
            return
        async with (
            forwarded(directory) as address,
            httpx2.AsyncClient(timeout=SECONDS) as http,
            Client(
                streamable_http_client(f"{address}/mcp", http_client=http),
                client_info=info,
                mode=mode,
            ) as client,
        ):
            yield Tools(client)

    try:
        yield connect
    finally:
        os.close(directory)


@asynccontextmanager
async def forwarded(directory: int) -> AsyncIterator[str]:
    """The daemon's socket as a port of this machine. What a cancelled call does to a unix socket of
    anyio's may be an InvalidStateError in the event loop, of a port it is not."""
    tasks: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        there = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/api.sock")
        pipes = [
            asyncio.ensure_future(pipe(reader, there[1])),
            asyncio.ensure_future(pipe(there[0], writer)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pipes:
                one.cancel()
            await asyncio.wait(pipes)
            for end in (writer, there[1]):
                end.close()
            tasks.discard(task)

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


def unix_client(directory: int, **headers: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=f"/proc/self/fd/{directory}/api.sock"),
        base_url="http://localhost",
        timeout=SECONDS,
        headers=headers,
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
