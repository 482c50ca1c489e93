"""A guest's DNS: what is answered to whom, and that hostile packets get nowhere."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.network.gateway import resolver
from agentkernel.network.gateway.dns import answer_query
from agentkernel.network.gateway.names import Names, NamesFull
from agentkernel.network.policy.model import Caps, Rule

from .gateway_lab import Lab, ended, lab, until


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


def ask(packet: bytes, *, stream: bool = False) -> dns.message.Message | None:
    def name_of(address: str) -> str | None:
        return "known.example.org" if address == "198.18.1.7" else None

    said = answer_query(packet, lambda name: "198.18.1.7", name_of, stream=stream)
    return None if said is None else dns.message.from_wire(said)


def query(name: str, kind: str = "A", **more: object) -> bytes:
    return dns.message.make_query(name, kind, **more).to_wire()  # type: ignore[arg-type]


def answers(message: dns.message.Message | None) -> list[str]:
    assert message is not None
    return [record.to_text() for rrset in message.answer for record in rrset]


def test_every_proper_name_has_an_address() -> None:
    for name in ("example.org", "EXAMPLE.org.", "a_b.x", "single", "xn--nxasmq6b.example"):
        assert answers(ask(query(name))) == ["198.18.1.7"]
    assert answers(ask(query("localhost"))) == ["127.0.0.1"]
    assert answers(ask(query("sub.localhost"))) == ["127.0.0.1"]
    assert answers(ask(query("example.org", "ANY"))) == ["198.18.1.7"]
    assert answers(ask(query("example.org", use_edns=0, payload=4096))) == ["198.18.1.7"]


@pytest.mark.parametrize("kind", ["AAAA", "TXT", "HTTPS", "SVCB", "MX", "NS", "SOA", "NULL", "SRV"])
def test_other_kinds_have_no_data(kind: str) -> None:
    message = ask(query("example.org", kind))
    assert message is not None and message.rcode() == dns.rcode.NOERROR
    assert not message.answer and message.authority[0].rdtype == dns.rdatatype.SOA


def test_what_is_no_host_name_does_not_exist() -> None:
    for name in ("127.1", "0x7f.0.0.1", "with\\032space.org", "nul\\000.org", "-x.org", "."):
        message = ask(query(name))
        assert message is not None and message.rcode() == dns.rcode.NXDOMAIN, name


def test_our_addresses_have_names() -> None:
    assert answers(ask(query("7.1.18.198.in-addr.arpa", "PTR"))) == ["known.example.org."]
    for name in ("8.8.8.8.in-addr.arpa", "in-addr.arpa", "x.1.18.198.in-addr.arpa", "1.ip6.arpa"):
        message = ask(query(name, "PTR"))
        assert message is not None and message.rcode() == dns.rcode.NXDOMAIN


def _many_questions() -> bytes:
    packet = bytearray(query("example.org"))
    packet[4:6] = b"\0\2"
    return bytes(packet + packet[12:])


BROKEN = {
    "two questions": _many_questions(),
    "no question": query("example.org")[:12].replace(b"\0\1", b"\0\0"),
    "a pointer to itself": query("example.org")[:12] + b"\xc0\x0c\0\1\0\1",
    "a pointer ahead": query("example.org")[:12] + b"\xc0\x20\0\1\0\1" + bytes(40),
    "two pointers in a loop": query("example.org")[:12] + b"\1a\xc0\x10\xc0\x0c\0\1\0\1",
    "cut off": query("example.org")[:-3],
    "a tail": query("example.org") + b"more",
    "a long label": query("example.org")[:12] + b"\x7f" + b"a" * 127 + b"\0\0\1\0\1",
    "oversized": query("example.org") + bytes(5000),
    "answers in a query": query("example.org")[:6] + b"\0\1" + query("example.org")[8:],
}


@pytest.mark.parametrize("label", BROKEN)
def test_what_is_not_one_question_is_a_format_error(label: str) -> None:
    message = ask(BROKEN[label])
    assert message is not None and message.rcode() == dns.rcode.FORMERR
    assert message.id == int.from_bytes(BROKEN[label][:2], "big")


def test_some_packets_get_no_answer_or_a_refusal() -> None:
    assert ask(b"") is None
    assert ask(b"short") is None
    response = dns.message.make_response(dns.message.from_wire(query("example.org")))
    assert ask(response.to_wire()) is None
    update = bytearray(query("example.org"))
    update[2] = 5 << 3
    message = ask(bytes(update))
    assert message is not None and message.rcode() == dns.rcode.NOTIMP
    chaos = dns.message.make_query("version.bind", "TXT", "CH").to_wire()
    message = ask(chaos)
    assert message is not None and message.rcode() == dns.rcode.REFUSED


@given(st.binary(max_size=600))
def test_no_packet_breaks_it(packet: bytes) -> None:
    answer_query(packet, lambda name: "198.18.1.7", lambda address: None, stream=False)


@given(st.integers(0, 60), st.integers(0, 255), st.sampled_from(["A", "PTR", "ANY", "OPT"]))
def test_no_changed_byte_breaks_it(at: int, value: int, kind: str) -> None:
    packet = bytearray(query("some.example.org", kind, use_edns=0))
    packet[at % len(packet)] = value
    said = answer_query(bytes(packet), lambda name: "198.18.1.7", lambda a: None, stream=True)
    assert said is None or len(said) < 2048


# --- the file of names ---


def test_names_keep_their_addresses(tmp_path: Path) -> None:
    path = str(tmp_path / "names")
    names = Names(path)
    first = names.address_of("a.example.org", 10)
    assert first == "198.18.1.0"
    second = names.address_of("b.example.org", 10)
    names.close()
    with open(path, "ab") as file:
        file.write(b"cut.exam")
    again = Names(path)
    assert again.name_of(first) == "a.example.org"
    assert again.address_of("b.example.org", 10) == second
    third = again.address_of("c.example.org", 10)
    assert third not in (first, second)
    assert again.name_of("198.18.0.1") is None and again.name_of("198.19.255.255") is None
    with pytest.raises(NamesFull):
        again.address_of("d.example.org", 3)
    assert again.address_of("a.example.org", 3) == first
    again.count(7, 8)
    again.close()
    lines = (tmp_path / "names").read_text().splitlines()
    assert lines[1:] == ["a.example.org", "b.example.org", "c.example.org"]
    third_time = Names(path)
    assert (third_time.up, third_time.down, len(third_time)) == (7, 8, 3)
    third_time.close()
    assert os.stat(path).st_mode & 0o777 == 0o600


# --- over sockets ---


async def over_udp(it: Lab, packet: bytes) -> dns.message.Message:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(it.udp_address)
        async with asyncio.timeout(10):
            while True:
                # Datagrams may be lost: whoever asks asks again.
                await loop.sock_sendall(sock, packet)
                try:
                    async with asyncio.timeout(0.5):
                        return dns.message.from_wire(await loop.sock_recv(sock, 65536))
                except TimeoutError:
                    continue


async def test_datagrams_are_answered_and_told(tmp_path: Path) -> None:
    async with lab(tmp_path, Rule(host="*.good.org", ports=(22,))) as it:
        first = answers(await over_udp(it, query("a.good.org")))
        assert first == ["198.18.1.0"]
        assert answers(await over_udp(it, query("A.GOOD.ORG"))) == first
        assert answers(await over_udp(it, query("evil.org"))) == ["198.18.1.1"]
        (allowed,) = it.told("network.allow", via="dns")
        assert (allowed.host, allowed.address, allowed.rule) == ("a.good.org", "198.18.1.0", 1)
        (denied,) = it.told("network.deny", via="dns")
        assert denied.host == "evil.org"
        # The second question was the same decision again.
        again = await until(lambda: it.told("network.allow", via="dns")[1:])
        assert again[0].times == 1


async def test_too_many_names_fail_and_are_told(tmp_path: Path) -> None:
    async with lab(tmp_path, Rule(host="*"), caps=Caps(names=1)) as it:
        assert answers(await over_udp(it, query("one.org"))) == ["198.18.1.0"]
        assert (await over_udp(it, query("two.org"))).rcode() == dns.rcode.SERVFAIL
        assert answers(await over_udp(it, query("one.org"))) == ["198.18.1.0"]
        assert it.told("network.limit", via="dns", host="two.org")


async def test_queries_over_tcp_to_any_address(tmp_path: Path) -> None:
    async with lab(tmp_path) as it:
        reader, writer = await it.dial("8.8.8.8", 53)
        for name in ("one.org", "two.org"):
            packet = query(name)
            writer.write(len(packet).to_bytes(2, "big") + packet)
        for address in ("198.18.1.0", "198.18.1.1"):
            size = int.from_bytes(await reader.readexactly(2), "big")
            assert answers(dns.message.from_wire(await reader.readexactly(size))) == [address]
        writer.write(b"\xff\xff")
        assert not await ended(reader)


async def test_a_flood_of_datagrams_is_slowed_and_does_not_stop_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "QUERIES_AT_ONCE", 50.0)
    async with lab(tmp_path, Rule(host="*")) as it:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
            for number in range(2000):
                flood.sendto(query(f"n{number}.org"), it.udp_address)
        assert (await over_udp(it, query("good.org"))).rcode() == dns.rcode.NOERROR
        assert it.told("network.limit", via="dns")
