"""A gateway in this process, with a sandbox whose connections come over this machine's loopback.

There are no namespaces here: where a connection "wanted to go" is told by the test. Everything
behind that is the real thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from agentkernel.network.gateway.messages import (
    GENERATION,
    Done,
    Hello,
    NetworkEvent,
    Register,
    Update,
    Welcome,
)
from agentkernel.network.gateway.server import Gateway
from agentkernel.network.gateway.subjects import Sandbox
from agentkernel.network.policy.model import Caps, NetworkSetting, Operator, Policy, Rule

ID = "s" * 20
SECONDS = 10.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def setting(*rules: Rule, caps: Caps | None = None) -> NetworkSetting:
    return NetworkSetting(phases={"default": Policy(rules=rules, caps=caps or Caps())})


def hello_bytes(name: str | None) -> bytes:
    """What OpenSSL says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


async def until(condition: Callable[[], Any]) -> Any:
    """What `condition` says as soon as it says something."""
    async with asyncio.timeout(SECONDS):
        while True:
            if found := condition():
                return found
            await asyncio.sleep(0.005)


async def ended(reader: asyncio.StreamReader) -> bytes | None:
    """All that comes up to the end; None if the connection is reset."""
    async with asyncio.timeout(SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return None


async def hang_up(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Server:
    """Somebody out there; `visits` has what each connection said first."""

    def __init__(self, serve: Serve | None = None) -> None:
        self.visits: list[bytes] = []
        self._serve = serve or self._echo
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.visits.append(data)
            writer.write(data)
            await writer.drain()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError):
            await self._serve(reader, writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await hang_up(self._writers)


class Lab:
    def __init__(self, gateway: Gateway, listener: socket.socket, udp: socket.socket) -> None:
        self.gateway = gateway
        self.tcp_address = listener.getsockname()
        self.udp_address = udp.getsockname()
        self.destinations: dict[int, tuple[str, int]] = {}
        self.writers: list[asyncio.StreamWriter] = []
        self._told: list[NetworkEvent] = []

    @property
    def sandbox(self) -> Sandbox:
        return self.gateway._sandboxes[ID].sandbox

    @property
    def events(self) -> list[NetworkEvent]:
        while batch := self.gateway.world.outbox.pull():
            self._told.extend(batch.events)
        return self._told

    def told(self, kind: str, **fields: Any) -> list[NetworkEvent]:
        return [
            event
            for event in self.events
            if event.kind == kind and all(getattr(event, k) == v for k, v in fields.items())
        ]

    def prepare(self, host: str, port: int) -> tuple[socket.socket, str]:
        """A guest's socket whose connection will be one to that place, and its address."""
        if not host[0].isdecimal():
            host = self.sandbox.names.address_of(host, 10_000)
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        self.destinations[sock.getsockname()[1]] = (host, port)
        return sock, host

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As a guest: a name by the address that DNS gave it, or an address."""
        sock, _ = self.prepare(host, port)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.tcp_address)
        except OSError:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(sock=sock)
        self.writers.append(writer)
        return reader, writer

    async def update(self, setting: NetworkSetting) -> None:
        answer = await self.gateway.handle(Update(serial=1, id=ID, setting=setting), [])
        assert answer == Done(serial=1)

    async def operate(self, operator: Operator) -> None:
        """As another daemon does when it comes."""
        hello = Hello(serial=1, generation=GENERATION, operator=operator)
        assert isinstance(await self.gateway.handle(hello, []), Welcome)


@contextlib.asynccontextmanager
async def lab(
    directory: Path, *rules: Rule, caps: Caps | None = None, **operator: Any
) -> AsyncIterator[Lab]:
    """`operator`: fields of Operator. Names are what `hosts` says."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    made: list[Lab] = []

    def destination(client: socket.socket) -> tuple[str, int]:
        return made[0].destinations[client.getpeername()[1]]

    gateway = Gateway(str(directory), destination)
    made.append(Lab(gateway, listener, udp))
    operator.setdefault("upstream_proxy", "none")
    await made[0].operate(Operator(**operator))
    call = Register(
        serial=1, id=ID, setting=setting(*rules, caps=caps), names=str(directory / "names")
    )
    life = os.pidfd_open(os.getpid())
    answer = await gateway.handle(call, [listener.detach(), udp.detach(), life])
    assert answer == Done(serial=1)
    try:
        yield made[0]
    finally:
        await gateway.close()
        await hang_up(made[0].writers)
