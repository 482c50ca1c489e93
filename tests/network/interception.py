"""What the tests of interception share: a sandbox's stand-in, certificates, servers that say
exactly what they are told to, and raw connections through `serve_http` and `serve_tls`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agentkernel.network.gateway.flow import CapReached, Flow, Refused
from agentkernel.network.intercept.serving import serve_http, serve_tls
from agentkernel.network.policy.judging import judge_connection
from agentkernel.network.policy.model import NetworkSetting, Operator, Policy, Rule

SECONDS = 10.0
HOST = "api.example.org"
Handler = Callable[["Heard", asyncio.StreamWriter], Awaitable[None]]


def allowing(*rules: Rule) -> NetworkSetting:
    return NetworkSetting(phases={"default": Policy(rules=rules or (Rule(host=HOST),))})


@dataclass
class Sandbox:
    """As flows see one."""

    setting: NetworkSetting = field(default_factory=allowing)
    operator: Operator = field(default_factory=Operator)
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    id: str = "abcdefghij0123456789"
    events: list[dict[str, Any]] = field(default_factory=list)
    up: int = 0
    down: int = 0
    most_down: int | None = None

    def emit(self, kind: str, flow: Flow, **words: Any) -> None:
        self.events.append({"kind": kind, "host": flow.host, **words})

    async def take(self, *, up: int = 0, down: int = 0) -> None:
        self.up += up
        self.down += down
        if self.most_down is not None and self.down > self.most_down:
            raise CapReached("download_bytes is used up")

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


@dataclass
class To:
    """Dials one port of this machine, whatever the flow is for."""

    port: int
    dialled: int = 0
    refusal: Refused | None = None

    async def dial(self, flow: Flow) -> tuple[socket.socket, str]:
        self.dialled += 1
        if self.refusal is not None:
            raise self.refusal
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock, "127.0.0.1"


class Certificates:
    """A test's own authority, and server certificates of all kinds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._sign("test authority", self._key, None, days=(-1, 30))
        self.authority = str(directory / "authority.pem")
        Path(self.authority).write_bytes(self._pem(self._authority))

    def context(
        self, host: str = HOST, *, days: tuple[int, int] = (-1, 30), self_signed: bool = False
    ) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._sign(host, key, None if self_signed else self._authority, days=days)
        path = self._directory / "server.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + self._pem(leaf)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _pem(self, certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Certificate | None,
        *,
        days: tuple[int, int],
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=" " in name, path_length=None), critical=True)
        )
        if " " not in name:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key if issuer else key, hashes.SHA256())


class Heard:
    """A stream's reading half, which keeps what it read."""

    def __init__(self, reader: asyncio.StreamReader, received: bytearray) -> None:
        self._reader = reader
        self._received = received

    async def read(self, size: int = 65536) -> bytes:
        data = await self._reader.read(size)
        self._received += data
        return data

    async def exactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self._received += data
        return data

    def forget(self) -> None:
        self._received.clear()

    async def head(self) -> bytes:
        data = await self._reader.readuntil(b"\r\n\r\n")
        self._received += data
        return data


class Server:
    """The far side. Keeps all that was sent to it, by connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.received: list[bytearray] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = bytearray()
        self.received.append(received)
        heard = Heard(reader, received)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await self._handler(heard, writer)
        finally:
            writer.close()


def says(response: bytes, *, times: int = 1) -> Handler:
    """Reads a head, answers with these bytes, as often as said, and closes."""

    async def handle(heard: Heard, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await heard.head()
            writer.write(response)
            await writer.drain()

    return handle


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


class Guest:
    """A client inside, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, list[tuple[str, str]]]:
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SECONDS)
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        pairs = [line.split(":", 1) for line in lines]
        return int(first.split()[1]), [(name.lower(), value.strip()) for name, value in pairs]

    async def response(self, method: str = "GET") -> Response:
        """The next one that is not informational."""
        status, headers = await self.head()
        while status < 200:
            status, headers = await self.head()
        response = Response(status, headers, b"")
        if method == "HEAD" or status in (204, 304):
            return response
        if response.header("transfer-encoding") == "chunked":
            while size := int(await asyncio.wait_for(self.reader.readline(), SECONDS), 16):
                response.body += await asyncio.wait_for(self.reader.readexactly(size), SECONDS)
                await self.reader.readline()
            while line := (await asyncio.wait_for(self.reader.readline(), SECONDS)).strip():
                name, _, value = line.decode().partition(":")
                response.headers.append((f"trailer {name.lower()}", value.strip()))
        elif (length := response.header("content-length")) is not None:
            response.body = await asyncio.wait_for(self.reader.readexactly(int(length)), SECONDS)
        else:
            response.body = await self.rest()
        return response

    async def ask(self, raw: bytes, method: str = "GET") -> Response:
        await self.send(raw)
        return await self.response(method)

    async def rest(self) -> bytes:
        """All until the connection ends, which it has to."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return await asyncio.wait_for(self.reader.read(), SECONDS)
        return b""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A connection's two ends, over TCP as the real ones: the guest's, the gateway's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        inner = socket.create_connection(listener.getsockname())
        outer, _ = listener.accept()
    inner.setblocking(False)
    outer.setblocking(False)
    return inner, outer


@contextlib.asynccontextmanager
async def guest(
    sandbox: Sandbox,
    dialler: To,
    *,
    port: int = 80,
    host: str = HOST,
    trusting: ssl.SSLContext | None = None,
    name: str | None = None,
) -> AsyncIterator[Guest]:
    """A connection to `host`; over TLS if `trusting` says whom to trust, with `name` as its SNI.
    What serves it has to be over, and nothing of it left, when the guest is gone."""
    before = asyncio.all_tasks()
    inner, outer = socket_pair()
    verdict = judge_connection(sandbox.setting.policy, sandbox.operator.floor, host, port)
    flow = Flow(sandbox, outer, host, port, "tls" if trusting else "http", verdict)
    served = asyncio.create_task(
        serve_tls(flow, dialler, None) if trusting else serve_http(flow, dialler)
    )
    writer: asyncio.StreamWriter | None = None
    try:
        reader, opened = await asyncio.wait_for(
            asyncio.open_connection(
                sock=inner,
                ssl=trusting,
                server_hostname=(host if name is None else name) if trusting else None,
            ),
            SECONDS,
        )
        writer = opened
        yield Guest(reader, opened)
    finally:
        if writer is not None:
            writer.transport.abort()
        else:
            inner.close()
        await asyncio.wait_for(served, SECONDS)
    await settled(before)


async def settled(before: set[asyncio.Task[Any]]) -> None:
    """No task is left of what was begun since; the far side's own may need a moment."""
    async with asyncio.timeout(SECONDS):
        while left := {task for task in asyncio.all_tasks() - before if not task.done()}:
            await asyncio.wait(left, timeout=0.05)
