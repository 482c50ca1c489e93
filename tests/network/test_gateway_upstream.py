"""The other side: how names are resolved, which addresses are dialled, and the host's own proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dns.message
import dns.rrset
import pytest

from agentkernel.network.gateway import upstream, upstream_proxy
from agentkernel.network.gateway.flow import Refused
from agentkernel.network.gateway.upstream_proxy import Proxy
from agentkernel.network.policy.model import Operator, Rule
from agentkernel.network.policy.names import parse_address

from .gateway_lab import Server, ended, hang_up, lab

NAME = "named.example.org"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class NameServer(asyncio.DatagramProtocol):
    """Answers A with what the test says, one after another; AAAA with nothing."""

    def __init__(self, *addresses: tuple[str, ...]) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, asker: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        response = dns.message.make_response(query)
        if question.rdtype == 1:
            self.asked.append(question.name.to_text())
            found = self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]
            response.answer.append(dns.rrset.from_text(question.name, 0, "IN", "A", *found))
        self._transport.sendto(response.to_wire(), asker)  # type: ignore[attr-defined]

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, ("127.0.0.1", 0)
        )
        host, port = transport.get_extra_info("sockname")
        try:
            yield f"{host}:{port}"
        finally:
            transport.close()


async def test_the_operators_resolver_is_asked_and_every_address_vetted(tmp_path: Path) -> None:
    private = Rule(host="inner.example.org", private=True)
    servers = NameServer(("127.0.0.1",))
    async with Server().listening() as server, servers.listening() as resolver:
        named = Rule(host=NAME, ports=(server.port,), private=True)
        rules = (named, private, Rule(host="*"))
        async with lab(tmp_path, *rules, resolver=resolver) as it:
            reader, writer = await it.dial(NAME, server.port)
            writer.write(b"\x00abc")
            assert await reader.readexactly(4) == b"\x00abc"
            assert servers.asked == [f"{NAME}."]
            writer.close()
            # The same address under names whose rules do not say as much.
            for name in ("inner.example.org", "other.example.org"):
                reader, writer = await it.dial(name, server.port)
                writer.write(b"\x00abc")
                assert await ended(reader) is None
                (event,) = it.told("network.deny", host=name)
                assert "127.0.0.1" in event.reason and "loopback" in event.reason


@pytest.mark.parametrize(
    "answer",
    [
        ("169.254.169.254",),
        ("10.1.2.3",),
        ("192.0.2.1", "10.1.2.3"),
        ("0.0.0.0",),
        ("198.18.1.0",),
    ],
)
async def test_private_answers_are_refused(tmp_path: Path, answer: tuple[str, ...]) -> None:
    """Also when only one of several is."""
    async with (
        NameServer(answer).listening() as resolver,
        lab(tmp_path, Rule(host="*"), resolver=resolver) as it,
    ):
        reader, writer = await it.dial(NAME, 443)
        writer.write(b"\x00abc")
        assert await ended(reader) is None
        (event,) = it.told("network.deny", via="tcp")
        assert NAME in event.reason


async def test_every_connection_asks_anew_and_dials_what_was_vetted(tmp_path: Path) -> None:
    """A name server that says first this and then that."""
    servers = NameServer(("127.0.0.1",), ("169.254.169.254",))
    async with Server().listening() as server, servers.listening() as resolver:
        rule = Rule(host=NAME, ports=(server.port,), private=True)
        async with lab(tmp_path, rule, resolver=resolver) as it:
            reader, writer = await it.dial(NAME, server.port)
            writer.write(b"\x00abc")
            assert await reader.readexactly(4) == b"\x00abc"
            writer.close()
            reader, writer = await it.dial(NAME, server.port)
            writer.write(b"\x00abc")
            assert await ended(reader) is None
            assert "169.254.169.254" in it.told("network.deny")[0].reason


async def test_a_silent_resolver_is_a_fault_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "RESOLVE_SECONDS", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        resolver = f"127.0.0.1:{silent.getsockname()[1]}"
        async with lab(tmp_path, Rule(host="*"), resolver=resolver) as it:
            reader, writer = await it.dial(NAME, 443)
            writer.write(b"\x00abc")
            assert await ended(reader) is None
            assert it.told("network.fault", host=NAME)


async def test_one_sandboxs_lookups_that_hang_leave_others_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lookup that nobody waits for any more still has its thread."""
    go_on = threading.Event()
    asked: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host.startswith("slow"):
            go_on.wait()
        return [(None, None, None, None, ("192.0.2.1", 0))]

    monkeypatch.setattr(upstream, "RESOLVE_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    dialler = upstream.HostDialler()
    # As many at once as there are threads, and again when the first have been given up.
    slow = [asking("one", f"slow{number}.example.org") for number in range(upstream._THREADS)]
    try:
        for _ in range(3):
            found = await asyncio.gather(
                *(dialler._resolve(flow, Operator()) for flow in slow), return_exceptions=True
            )
            assert all(isinstance(each, Refused) for each in found)
        assert len(asked) == upstream._LOOKUPS_OF_ONE
        assert await dialler._resolve(asking("two", NAME), Operator())
        go_on.set()
        assert await dialler._resolve(asking("one", NAME), Operator()), "they are over"
    finally:
        go_on.set()
        dialler.close()


def asking(sandbox: str, host: str) -> Any:
    return SimpleNamespace(subject=SimpleNamespace(id=sandbox), host=host)


async def test_a_closed_port_is_a_fault_with_words(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        async with lab(tmp_path, Rule(host=NAME), hosts={NAME: "127.0.0.1"}) as it:
            reader, writer = await it.dial(NAME, port)
            writer.write(b"\x00abc")
            assert await ended(reader) is None
            (event,) = it.told("network.fault")
            assert "refused" in event.reason


async def test_the_first_address_that_answers_is_taken() -> None:
    async with Server().listening() as server:
        addresses = [parse_address(text) for text in ("127.0.0.2", "127.0.0.1")]
        sock, address = await upstream.connect_first(addresses, server.port, "it")
        sock.close()
        assert address == "127.0.0.1"


# --- the host's own proxy ---


class ForwardProxy:
    """Knows one name."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        if NAME.encode() not in head:
            writer.write(b"HTTP/1.1 502 No\r\n\r\n")
            return
        there, to = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 Yes\r\nX: y\r\n\r\n")
        data = await reader.read(100)
        to.write(data)
        writer.write(await there.readexactly(len(data)))
        await hang_up([to])


async def test_the_hosts_proxy_is_asked_by_name(tmp_path: Path) -> None:
    async with Server().listening() as server:
        forward = ForwardProxy(server.port)
        async with Server(forward.serve).listening() as middle:
            address = f"http://me:p%40ss@127.0.0.1:{middle.port}"
            async with lab(tmp_path, Rule(host="*"), upstream_proxy=address) as it:
                reader, writer = await it.dial(NAME, 443)
                writer.write(b"\x00abc")
                assert await reader.readexactly(4) == b"\x00abc"
                head = forward.heads[0]
                assert head.startswith(f"CONNECT {NAME}:443 HTTP/1.1\r\n".encode())
                assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in head
                reader, writer = await it.dial("unknown.example.org", 443)
                writer.write(b"\x00abc")
                assert await ended(reader) is None
                (event,) = it.told("network.fault")
                assert "502" in event.reason and "ss" not in event.reason.split()


def test_which_proxy_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert upstream_proxy.find("auto", NAME, 443) is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    monkeypatch.setenv("http_proxy", "plain.corp:80")
    monkeypatch.setenv("NO_PROXY", ".corp, 10.0.0.0/8,exact.org")
    assert upstream_proxy.find("auto", NAME, 443) == Proxy("proxy.corp", 3128)
    assert upstream_proxy.find("auto", NAME, 8080) == Proxy("plain.corp", 80)
    for host in ("a.corp", "corp", "10.2.3.4", "exact.org", "sub.exact.org"):
        assert upstream_proxy.find("auto", host, 443) is None
    assert upstream_proxy.find("auto", "notcorp", 443) is not None
    assert upstream_proxy.find("none", NAME, 443) is None
    with pytest.raises(Refused):
        upstream_proxy.find("socks5://x:1", NAME, 443)
