"""Connections through the gateway: what passes, what is reset, and what is said about it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from agentkernel.network.policy.model import Caps, Operator, Policy, Rule, Tls

from .gateway_lab import Server, ended, hello_bytes, lab, setting, until
from .hellos import ECH, message, records, server_name

GOOD = "good.example.org"
TWIN = "twin.example.org"


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


@pytest.mark.parametrize("named", [TWIN, None, f"{GOOD}.evil.org"])
async def test_tls_that_names_another_server_is_reset(tmp_path: Path, named: str | None) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(hello_bytes(named))
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


async def test_caps_on_connections_and_bytes(tmp_path: Path) -> None:
    caps = Caps(connections=2, upload_bytes=1000)
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), caps=caps, hosts={GOOD: "127.0.0.1"}) as it,
    ):
        first = await it.dial(GOOD, server.port)
        first[1].write(b"\x00" * 900)
        assert len(await first[0].readexactly(900)) == 900
        second = await it.dial(GOOD, server.port)
        await until(lambda: len(it.sandbox.connections) == 2)
        with contextlib.suppress(ConnectionResetError):  # by then, or soon after
            third = await it.dial(GOOD, server.port)
            assert await ended(third[0]) is None
        assert it.told("network.limit", reason="it has as many connections open as it may")
        first[1].write(b"\x00" * 101)
        assert await ended(first[0]) is None
        await until(lambda: [e for e in it.told("network.limit") if "1000 bytes" in e.reason])
        second[1].close()


async def test_bytes_are_counted_on_by_the_next_gateway(tmp_path: Path) -> None:
    caps = Caps(upload_bytes=1000)
    for arrives in (True, False):
        async with (
            Server().listening() as server,
            lab(tmp_path, Rule(host=GOOD), caps=caps, hosts={GOOD: "127.0.0.1"}) as it,
        ):
            reader, writer = await it.dial(GOOD, server.port)
            writer.write(b"\x00" * 900)
            if arrives:
                assert await reader.read(1) == b"\x00"
            else:
                assert await ended(reader) is None
                assert server.visits == []
            writer.close()


async def test_the_operators_floor_narrows_caps(tmp_path: Path) -> None:
    async with lab(tmp_path, Rule(host=GOOD), caps=Caps(connections=500)) as it:
        assert it.sandbox._caps == Caps(connections=500)
        await it.operate(Operator(floor=Policy(caps=Caps(connections=1, upload_bytes=7))))
        assert it.sandbox._caps == Caps(connections=1, upload_bytes=7)
        first, _ = await it.dial(GOOD, 443)
        await until(lambda: it.sandbox.connections)
        with contextlib.suppress(ConnectionResetError):
            second, _ = await it.dial(GOOD, 443)
            assert await ended(second) is None
        assert it.told("network.limit")


async def test_half_closed_connections_go_on_the_other_way(tmp_path: Path) -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"%d" % len(await reader.read()))

    async with (
        Server(answer_at_the_end).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(b"\x00" * 3_000_000)
        await writer.drain()
        writer.write_eof()
        assert await ended(reader) == b"3000000"


async def test_urgent_data_keeps_nobody_busy(tmp_path: Path) -> None:
    """One such byte, of a guest or of a server, and splice(2) takes nothing any more."""

    def send_urgent(writer: asyncio.StreamWriter) -> None:
        fd = os.dup(writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=fd) as sock:
            sock.send(b"!", socket.MSG_OOB)

    async def urgent_too(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        send_urgent(writer)
        writer.write(await reader.read())

    async with (
        Server(urgent_too).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(b"\x00one")
        await until(lambda: it.told("network.allow"))
        send_urgent(writer)
        writer.write(b"two")
        writer.write_eof()
        assert await ended(reader) == b"\x00onetwo"


async def test_connect_through_the_proxy(tmp_path: Path) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        reader, writer = await it.dial("198.18.0.1", 3128)
        writer.write(f"CONNECT {GOOD}:{server.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        hello = hello_bytes(GOOD)
        writer.write(hello)
        assert await reader.readexactly(len(hello)) == hello
        assert it.told("network.allow", via="proxy", host=GOOD)
        writer.close()

        reader, writer = await it.dial("198.18.0.1", 3128)
        writer.write(f"CONNECT {GOOD}:{server.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(hello_bytes(TWIN))
        assert await ended(reader) is None

        reader, writer = await it.dial("198.18.0.1", 3128)
        writer.write(f"CONNECT {TWIN}:{server.port} HTTP/1.1\r\n\r\n".encode())
        said = await ended(reader)
        assert said is not None and said.startswith(b"HTTP/1.1 403 ") and TWIN.encode() in said


@pytest.mark.parametrize(
    "target",
    [
        "evil.org\0.good.example.org:443",
        "user@good.example.org:443",
        "2130706433:443",
        "0x7f.0.0.1:443",
        "127.1:443",
        "good.example.org%2e:443",
        "good.example.org",
        "good.example.org:0",
        "good.example.org:65536",
        "good.example.org:443:443",
        "[::1]x:443",
        "[::1%lo]:443",
        "g\u00f6\u00f6d.org:443",
        "a..b:443",
        "",
    ],
)
async def test_connect_to_what_is_not_plainly_a_host_is_refused(
    tmp_path: Path, target: str
) -> None:
    async with lab(tmp_path, Rule(host="*"), Rule(host="0.0.0.0/0", private=True)) as it:
        reader, writer = await it.dial("198.18.0.1", 3128)
        writer.write(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        said = await ended(reader)
        assert said is not None and said.startswith(b"HTTP/1.1 400 ")
        assert it.told("network.deny", via="proxy")


async def test_an_absolute_request_to_the_proxy(tmp_path: Path) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /x HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async with (
        Server(hello).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        place = f"{GOOD}:{server.port}"
        for host, status in ((place, b"200"), (f"{TWIN}:{server.port}", b"403")):
            reader, writer = await it.dial("198.18.0.1", 3128)
            writer.write(f"GET http://{place}/x HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            said = await ended(reader)
            assert said is not None and said.startswith(b"HTTP/1.1 " + status)


async def test_socks_4a_and_names_with_a_zero(tmp_path: Path) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        port = server.port.to_bytes(2, "big")
        reader, writer = await it.dial("198.18.0.1", 1080)
        writer.write(b"\x04\x01" + port + b"\0\0\0\x01me\0" + GOOD.encode() + b"\0")
        assert (await reader.readexactly(8))[1] == 0x5A
        writer.write(b"\0data")
        assert await reader.readexactly(5) == b"\0data"
        writer.close()

        name = b"evil.org\0." + GOOD.encode()
        reader, writer = await it.dial("198.18.0.1", 1080)
        writer.write(b"\x05\x01\x00")
        await reader.readexactly(2)
        writer.write(b"\x05\x01\x00\x03" + bytes((len(name),)) + name + port)
        assert (await ended(reader) or b"")[1] == 2
