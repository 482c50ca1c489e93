"""The server's bounds, each made small enough to be met; and a fake kernel that can be slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import types
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect, unix_connect

from agentkernel.errors import UnauthenticatedError
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.store import TokenRecord
from agentkernel.server.app import Service
from agentkernel.server.bounds import Bounds
from agentkernel.server.daemon import HttpServer
from agentkernel.server.network import Network
from agentkernel.server.protocols import hung_up

DEADLINE_S = 20.0
SHORT = 0.2


class OneToken:
    """Knows one token, which never ends."""

    def check(self, text: str) -> TokenRecord:
        if text != "right":
            raise UnauthenticatedError("wrong")
        return TokenRecord(
            id="a" * 20, name="a", owner="token:a", scopes=["read", "exec"], sha256="0" * 64,
            created_at=0,
        )  # fmt: skip

    async def over(self, id: str) -> UnauthenticatedError:
        await asyncio.Event().wait()
        raise AssertionError


class SlowKernel:
    """Makes a sandbox for ever, and takes files and tells events as a real one."""

    state_dir = "/nowhere"

    def __init__(self) -> None:
        self.making = asyncio.Event()
        self.gave_up = asyncio.Event()
        self.size = 0
        self.tokens = OneToken()

    async def create(self, *arguments: Any, progress: Callable[[str], None], **rest: Any) -> None:
        await asyncio.to_thread(progress, "making it")
        self.making.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.gave_up.set()

    async def remove(self, id: str, *, reason: str) -> None:
        pass

    async def events(self, after: int, **filters: Any) -> Any:
        return types.SimpleNamespace(newest=0, records=[], gap=False, next=0)

    async def wait_for_events(self, after: int) -> None:
        await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def files(self, id: str, **options: Any) -> AsyncIterator[Any]:
        yield self

    async def write(self, path: str, pieces: AsyncIterator[bytes], **options: Any) -> int:
        async for piece in pieces:
            self.size += len(piece)
        return self.size


class Server:
    def __init__(self, directory: Path, bounds: Bounds) -> None:
        self.path = str(directory / "s")
        self.kernel = SlowKernel()
        self.service = Service(cast(Kernel, self.kernel), bounds=bounds)

    async def __aenter__(self) -> Server:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen()
        listener.setblocking(False)
        network = socket.create_server(("127.0.0.1", 0))
        network.setblocking(False)
        # Inherited: what is not read is soon more than the kernel takes.
        network.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.port = network.getsockname()[1]
        hosts = frozenset({f"localhost:{self.port}"})
        door = Network(network, f"http://localhost:{self.port}", hosts, (), None)
        self._servers = [
            HttpServer(self.service, listener), HttpServer(self.service, network, door)
        ]  # fmt: skip
        for server in self._servers:
            await server.start()
        return self

    async def __aexit__(self, *reason: object) -> None:
        self.service.stopping.set()
        for server in self._servers:
            await server.stop()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path)

    async def call(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Somebody comes over the network, who takes little at a time."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        return await asyncio.open_connection(sock=connection)

    def called(self) -> bytes:
        return b"host: localhost:%d\r\nauthorization: Bearer right\r\n" % self.port

    def far_stream(self, path: str) -> Any:
        headers = {"Authorization": "Bearer right"}
        return connect(f"ws://localhost:{self.port}{path}", additional_headers=headers)

    def stream(self, path: str) -> Any:
        return unix_connect(self.path, f"ws://localhost{path}", compression=None)


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(**bounds: Any) -> Server:
            return await stack.enter_async_context(Server(tmp_path, Bounds(**bounds)))

        yield start


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    """The last answer of a connection: its status and its body."""
    async with asyncio.timeout(DEADLINE_S):
        content = await reader.read()
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def event(connection: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        message = await connection.recv()
    assert isinstance(message, bytes) and message[0] == 3
    body: dict[str, Any] = json.loads(message[1:])
    return body


POST = b"POST /v1/run HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("bound", "sent", "words"),
    [
        ("header_seconds", b"", "no request came within 0.2 s"),
        ("header_seconds", b"GET /v1/version HTTP/1.1\r\nx: y", "no request came within 0.2 s"),
        ("body_seconds", POST + b"content-length: 9\r\n\r\n{", "the body did not come within"),
        ("piece_seconds",
         b"PUT /v1/sandboxes/a/files?path=/f HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
         b"content-length: 9\r\n\r\n1234", "nothing more came within 0.2 s"),
    ],
)  # fmt: skip
async def test_who_is_slow_is_told(
    serve: Callable[..., Any], bound: str, sent: bytes, words: str
) -> None:
    server = await serve(**{bound: SHORT})
    reader, writer = await server.connect()
    writer.write(sent)
    status, problem = await answer(reader)
    assert (status, problem["code"]) == (408, "invalid_input")
    assert words in problem["detail"]
    writer.close()


async def test_control_who_is_in_time_is_served(serve: Callable[..., Any]) -> None:
    """The same bounds, met; the connection stays for more."""
    server = await serve(header_seconds=DEADLINE_S, body_seconds=DEADLINE_S)
    reader, writer = await server.connect()
    for _ in range(2):
        writer.write(b"GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert b'"api":1' in await reader.readuntil(b"}")
    writer.close()


async def test_an_idle_connection_is_closed(serve: Callable[..., Any]) -> None:
    server = await serve(keep_alive_seconds=1)
    reader, writer = await server.connect()
    writer.write(b"GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n")
    async with asyncio.timeout(DEADLINE_S):
        assert b"200 OK" in await reader.read()
    writer.close()


async def test_one_connection_too_many_is_turned_away(serve: Callable[..., Any]) -> None:
    server = await serve(max_connections=2)
    kept = [await server.connect() for _ in range(2)]
    for reader, writer in kept:
        writer.write(b"GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    reader, writer = await server.connect()
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n")
            assert await reader.read() == b""
    writer.close()
    # Once one of them has gone there is room again.
    kept[0][1].close()
    deadline = time.monotonic() + DEADLINE_S
    while True:
        reader, writer = await server.connect()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(b"GET /v1/version HTTP/1.1\r\nhost: a\r\n\r\n")
            if b"200 OK" in await reader.readuntil(b"\r\n\r\n"):
                break
        assert time.monotonic() < deadline, "there was never room again"
    for _, open_one in (*kept, (reader, writer)):
        open_one.close()


async def test_a_stream_needs_its_first_message(serve: Callable[..., Any]) -> None:
    server = await serve(first_message_seconds=SHORT)
    async with server.stream("/v1/run/stream") as connection:
        error = await event(connection)
    assert (error["event"], error["code"]) == ("error", "invalid_input")
    assert "no message came within 0.2 s" in error["detail"]


async def test_events_have_a_heartbeat(serve: Callable[..., Any]) -> None:
    server = await serve(heartbeat_seconds=0.05)
    reader, writer = await server.connect()
    writer.write(b"GET /v1/events HTTP/1.1\r\nhost: a\r\n\r\n")
    async with asyncio.timeout(DEADLINE_S):
        await reader.readuntil(b": ready\n\n")
        for _ in range(3):
            await reader.readuntil(b": ping\n\n")
    writer.close()


async def test_a_run_as_events_has_one_too_and_ends_with_its_client(
    serve: Callable[..., Any],
) -> None:
    server = await serve(heartbeat_seconds=0.05)
    reader, writer = await server.connect()
    body = b'{"argv": ["true"]}'
    head = b"POST /v1/run HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(DEADLINE_S):
        await reader.readuntil(b'event: progress\ndata: {"text":"making it"}\n\n')
        for _ in range(3):
            await reader.readuntil(b"event: ping\ndata: {}\n\n")
        assert not server.kernel.gave_up.is_set()
        writer.close()
        await server.kernel.gave_up.wait()


async def test_one_stream_too_many_is_an_answer(serve: Callable[..., Any]) -> None:
    server = await serve(max_streams=0)
    reader, writer = await server.connect()
    head = b"POST /v1/run HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n"
    writer.write(head + b"connection: close\r\ncontent-length: 14\r\n\r\n" + b'{"argv":["a"]}')
    status, problem = await answer(reader)
    assert (status, problem["code"]) == (507, "resource_exhausted")
    assert not server.kernel.making.is_set()
    writer.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_who_goes_away_ends_the_making_of_a_sandbox(
    serve: Callable[..., Any], how: str
) -> None:
    server = await serve()
    connecting = server.stream("/v1/run/stream")
    connection = await connecting.__aenter__()
    await connection.send(json.dumps({"command": {"argv": ["true"]}}))
    assert await event(connection) == {"event": "progress", "text": "making it"}
    async with asyncio.timeout(DEADLINE_S):
        await server.kernel.making.wait()
        assert not server.kernel.gave_up.is_set()
        connection.transport.abort() if how == "abort" else await connection.close()
        await server.kernel.gave_up.wait()


async def test_streams_over_a_network_leave_room(serve: Callable[..., Any]) -> None:
    server = await serve(max_streams=3, max_network_streams=1)
    async with server.far_stream("/v1/run/stream"):
        async with server.far_stream("/v1/run/stream") as second:
            error = await event(second)
        assert (error["event"], error["code"]) == ("error", "resource_exhausted")
        async with server.stream("/v1/run/stream") as near:
            await near.send(json.dumps({"command": {"argv": ["true"]}}))
            assert await event(near) == {"event": "progress", "text": "making it"}


async def test_connections_over_a_network_leave_room(serve: Callable[..., Any]) -> None:
    server = await serve(max_network_connections=1)
    ask = b"GET /v1/version HTTP/1.1\r\n"
    first = await server.call()
    first[1].write(ask + server.called() + b"\r\n")
    assert b"200 OK" in await first[0].readuntil(b"\r\n\r\n")
    reader, writer = await server.call()
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            writer.write(ask + server.called() + b"\r\n")
            assert await reader.read() == b"", "one too many"
    near = await server.connect()
    near[1].write(ask + b"host: a\r\n\r\n")
    assert b"200 OK" in await near[0].readuntil(b"\r\n\r\n")
    for open_one in (first[1], writer, near[1]):
        open_one.close()


@pytest.mark.parametrize("door", ["socket", "network"])
async def test_answers_that_nobody_reads_are_cut_off(serve: Callable[..., Any], door: str) -> None:
    server = await serve(unread_seconds=SHORT, token_burst=10**6)
    near = door == "socket"
    reader, writer = await (server.connect() if near else server.call())
    head = b"host: a\r\n" if near else server.called()
    writer.write((b"GET /v1/version HTTP/1.1\r\n" + head + b"\r\n") * 5_000)
    writer.transport.pause_reading()
    async with asyncio.timeout(DEADLINE_S):
        while not hung_up(writer.transport):  # noqa: ASYNC110 (nobody tells who does not read)
            await asyncio.sleep(0.02)
    writer.transport.abort()


@pytest.mark.parametrize("door", ["socket", "network"])
async def test_the_rest_of_a_refused_body_is_not_waited_for(
    serve: Callable[..., Any], door: str
) -> None:
    server = await serve(last_words_seconds=SHORT)
    near = door == "socket"
    reader, writer = await (server.connect() if near else server.call())
    head = b"host: a\r\n" if near else server.called()
    writer.write(b"POST /v1/run HTTP/1.1\r\n" + head + b"content-length: 99999999\r\n\r\n{")
    status, problem = await answer(reader)  # to the end of the connection
    assert (status, problem["code"]) == (413, "invalid_input")
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
    writer.close()


async def test_control_the_next_request_follows_a_body_that_was_read(
    serve: Callable[..., Any],
) -> None:
    server = await serve()
    reader, writer = await server.connect()
    for _ in range(2):
        writer.write(b"POST /v1/run HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n[]")
        assert b" 400 " in await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}}")
    writer.close()
