"""Connections through the gateway: what passes, what is reset, and what is said about it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentkernel.network.policy.model import Rule, Tls

from .gateway_lab import Server, ended, hello_bytes, lab, setting, until
from .hellos import ECH, message, records, server_name

GOOD = "good.example.org"
TWIN = "twin.example.org"
WARNING = bytes.fromhex("15030100020170")
"""A TLS record that some servers (Go's) take and forget before a hello: an alert, no fatal one."""


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


async def test_tls_to_an_allowed_name_is_spliced(tmp_path: Path) -> None:
    hello = hello_bytes(GOOD)
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        writer.write_eof()
        assert await ended(reader) == b""
        (event,) = it.told("network.allow", via="tls")
        assert (event.host, event.port, event.rule) == (GOOD, server.port, 1)
        assert event.address == "127.0.0.1"
        await until(lambda: not it.sandbox.connections)
        counted = it.sandbox.counted(1)
        assert (counted.up, counted.down) == (len(hello), len(hello))


@pytest.mark.parametrize("before", [b"", WARNING])
@pytest.mark.parametrize("named", [TWIN, None, f"{GOOD}.evil.org"])
async def test_tls_that_names_another_server_is_reset(
    tmp_path: Path, named: str | None, before: bytes
) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(before + hello_bytes(named))
        assert await ended(reader) is None
        assert server.visits == []
        (event,) = it.told("network.deny")
        assert "TLS hello" in event.reason


async def test_a_rule_that_splices_lets_a_nameless_hello_pass(tmp_path: Path) -> None:
    hello = hello_bytes(None)
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD, tls="splice"), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        writer.close()


@pytest.mark.parametrize("tls", ["auto", "splice"])
async def test_an_encrypted_hello_needs_a_rule_that_splices(tmp_path: Path, tls: Tls) -> None:
    hello = records(message(server_name(GOOD), ECH))
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD, tls=tls), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(hello)
        if tls == "splice":
            assert await reader.readexactly(len(hello)) == hello
            # What passed because of the rule does not outlive it.
            await it.update(setting(Rule(host=GOOD)))
        assert await ended(reader) is None
        assert it.told("network.deny", host=GOOD)
        if tls == "auto":
            assert server.visits == [] and "ECH" in it.told("network.deny")[0].reason


async def test_an_address_with_a_name_in_tls_needs_both(tmp_path: Path) -> None:
    async with Server().listening() as server:
        address = Rule(host="127.0.0.1", ports=(server.port,), private=True)
        async with lab(tmp_path, address, Rule(host=GOOD)) as it:
            for name, arrives in ((GOOD, True), (None, True), (TWIN, False)):
                hello = hello_bytes(name)
                reader, writer = await it.dial("198.18.0.1", 3128)
                target = f"127.0.0.1:{server.port}"
                writer.write(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
                await reader.readuntil(b"\r\n\r\n")
                writer.write(hello)
                if arrives:
                    assert await reader.readexactly(len(hello)) == hello
                    writer.close()
                else:
                    assert await ended(reader) is None


async def test_tls_to_a_denied_name_is_reset_at_once(tmp_path: Path) -> None:
    async with lab(tmp_path) as it:
        reader, writer = await it.dial("denied.example.org", 443)
        writer.write(hello_bytes("denied.example.org"))
        assert await ended(reader) is None
        (event,) = it.told("network.deny")
        assert (event.host, event.port, event.via) == ("denied.example.org", 443, "tls")
        assert event.reason


async def test_plain_http_to_a_denied_name_is_told_why(tmp_path: Path) -> None:
    async with lab(tmp_path) as it:
        reader, writer = await it.dial("denied.example.org", 80)
        writer.write(b"GET / HTTP/1.1\r\nHost: denied.example.org\r\n\r\n")
        said = await ended(reader)
        assert said is not None and said.startswith(b"HTTP/1.1 403 ")
        assert b"denied.example.org" in said


async def test_a_client_that_waits_for_the_server_gets_its_first_word(tmp_path: Path) -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-test\r\n")
        assert await reader.readline() == b"SSH-2.0-client\r\n"
        writer.write(b"and more")

    async with (
        Server(banner).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        assert await reader.readline() == b"SSH-2.0-test\r\n"
        writer.write(b"SSH-2.0-client\r\n")
        assert await ended(reader) == b"and more"


async def test_a_client_that_only_listens_hears_the_server(tmp_path: Path) -> None:
    """`nc HOST PORT </dev/null`, and `nc -z`, which connects and goes."""

    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        writer.write(b"220 hello\r\n")

    async with (
        Server(banner).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write_eof()
        assert await ended(reader) == b"220 hello\r\n"
        for name, kind in ((GOOD, "network.allow"), (TWIN, "network.deny")):
            _, writer = await it.dial(name, server.port)
            writer.close()
            await until(lambda name=name, kind=kind: it.told(kind, host=name))  # type: ignore[misc]
        assert not it.told("network.deny", host=GOOD)


async def test_a_late_hello_is_looked_at_all_the_same(tmp_path: Path) -> None:
    """The server was dialled already, because the client kept silent."""
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        for name, arrives in ((TWIN, False), (GOOD, True)):
            reader, writer = await it.dial(GOOD, server.port)
            flow = await until(lambda: next(iter(it.sandbox.connections)).flow)
            await until(lambda flow=flow: "address" in flow.extra)  # type: ignore[misc]
            hello = hello_bytes(name)
            writer.write(hello)
            if arrives:
                assert await reader.readexactly(len(hello)) == hello
                writer.close()
            else:
                assert await ended(reader) is None
                await until(lambda: not it.sandbox.connections)
                assert server.visits == []


async def test_addresses_are_judged_as_addresses(tmp_path: Path) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host="127.0.0.9/32", ports=(1,), private=True)) as it,
    ):
        # The control: the same address through a rule that names the port.
        for rule, passes in ((1, False), (server.port, True)):
            await it.update(setting(Rule(host="127.0.0.1", ports=(rule,), private=True)))
            reader, writer = await it.dial("198.18.0.1", 1080)
            writer.write(b"\x05\x01\x00")
            assert await reader.readexactly(2) == b"\x05\x00"
            port = server.port.to_bytes(2, "big")
            writer.write(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port)
            reply = await reader.readexactly(10)
            assert reply[1] == (0 if passes else 2)
            if passes:
                writer.write(b"\x00hello")
                assert await reader.readexactly(6) == b"\x00hello"
                writer.close()


async def test_the_gateways_own_port_and_unknown_addresses_lead_nowhere(tmp_path: Path) -> None:
    async with lab(tmp_path, Rule(host="*"), Rule(host="0.0.0.0/0", private=True)) as it:
        for address, port in (("127.0.0.1", 15001), ("198.18.77.1", 443), ("198.18.0.1", 25)):
            reader, _ = await it.dial(address, port)
            assert await ended(reader) is None
            assert it.told("network.deny", host=address, port=port)


async def test_a_name_that_means_a_private_address_is_refused(tmp_path: Path) -> None:
    """localhost.localdomain and the like: what this machine's own resolver knows."""
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host="*"), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        for name, arrives in (("localhost", False), (GOOD, True)):
            reader, writer = await it.dial(name, server.port)
            writer.write(b"\x00abc")
            if arrives:
                assert await reader.readexactly(4) == b"\x00abc"
                writer.close()
            else:
                assert await ended(reader) is None
                (event,) = it.told("network.deny")
                assert "loopback" in event.reason


async def test_a_change_of_policy_closes_what_it_no_longer_allows(tmp_path: Path) -> None:
    hosts = {GOOD: "127.0.0.1", TWIN: "127.0.0.1"}
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), Rule(host=TWIN), hosts=hosts) as it,
    ):
        streams = {}
        for name in hosts:
            reader, writer = streams[name] = await it.dial(name, server.port)
            writer.write(b"\x00one")
            assert await reader.readexactly(4) == b"\x00one"
        await it.update(setting(Rule(host=TWIN)))
        assert len(it.sandbox.connections) == 1
        assert await ended(streams[GOOD][0]) is None
        reader, writer = streams[TWIN]
        writer.write(b"two")
        assert await reader.readexactly(3) == b"two"
        writer.close()


async def test_a_rule_on_methods_closes_flows_that_are_not_seen(tmp_path: Path) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(b"\x00one")
        assert await reader.readexactly(4) == b"\x00one"
        await it.update(setting(Rule(host=GOOD, methods=("GET",))))
        assert await ended(reader) is None


async def test_a_range_denied_later_closes_what_meant_an_address_of_it(tmp_path: Path) -> None:
    """The name is allowed as before; what it was resolved to is not."""
    async with Server().listening() as server:
        allow = Rule(host="localhost", ports=(server.port,), private=True)
        async with lab(tmp_path, allow) as it:
            reader, writer = await it.dial("localhost", server.port)
            writer.write(b"\x00one")
            assert await reader.readexactly(4) == b"\x00one"
            await it.update(setting(Rule(action="deny", host="192.0.2.0/24"), allow))
            writer.write(b"two")
            assert await reader.readexactly(3) == b"two"
            await it.update(setting(Rule(action="deny", host="127.0.0.0/8"), allow))
            assert await ended(reader) is None
            assert "127.0.0.0/8" in it.told("network.deny")[-1].reason


async def test_a_name_denied_later_closes_tls_that_named_it_at_an_address(tmp_path: Path) -> None:
    async with Server().listening() as server:
        address = Rule(host="127.0.0.1", ports=(server.port,), private=True)
        async with lab(tmp_path, address, Rule(host=GOOD)) as it:
            readers = {}
            for name in (GOOD, None):
                hello = hello_bytes(name)
                readers[name], writer = await it.dial("198.18.0.1", 3128)
                writer.write(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode())
                await readers[name].readuntil(b"\r\n\r\n")
                writer.write(hello)
                assert await readers[name].readexactly(len(hello)) == hello
            await it.update(setting(address))
            assert await ended(readers[GOOD]) is None
            assert len(it.sandbox.connections) == 1, "the other one named nobody"
            writer.close()


async def test_a_request_that_is_allowed_no_more_is_cut_off(tmp_path: Path) -> None:
    """A long answer, a stream of events, a WebSocket: it may run for hours."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none")
        await reader.read()

    paths = Rule(host=GOOD, paths=("/a", "/b"))
    async with (
        Server(drip).listening() as server,
        lab(tmp_path, paths, hosts={GOOD: "127.0.0.1"}) as it,
    ):
        readers = {}
        for path in ("/a", "/b"):
            readers[path], writer = await it.dial(GOOD, server.port)
            head = f"GET {path} HTTP/1.1\r\nHost: {GOOD}:{server.port}\r\n\r\n"
            writer.write(head.encode())
            assert (await readers[path].readuntil(b"one")).startswith(b"HTTP/1.1 200")
        await it.update(setting(Rule(host=GOOD, paths=("/b",))))
        assert await ended(readers["/a"]) is None
        assert len(it.sandbox.connections) == 1
        assert "/a" in it.told("network.deny")[-1].reason
        writer.close()
