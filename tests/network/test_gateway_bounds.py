"""Connections through the gateway, many and long: caps, rates, descriptors, what is left open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
from pathlib import Path

import pytest

from agentkernel.network.gateway import opening
from agentkernel.network.gateway.splice import _Pump
from agentkernel.network.policy.model import Caps, Operator, Policy, Rule

from .gateway_lab import Lab, Server, ended, hello_bytes, lab, until

GOOD = "good.example.org"
TWIN = "twin.example.org"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


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


async def test_stalled_openings_do_not_keep_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPENING_SECONDS", 1.0)
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        stalled = []
        for first in (b"\x16", b"FOO", b"GE", hello_bytes(GOOD)[:-1]) * 25:
            stalled.append(await it.dial(GOOD, server.port))
            stalled[-1][1].write(first)
        reader, writer = await it.dial(GOOD, server.port)
        writer.write(b"\x00abc")
        assert await reader.readexactly(4) == b"\x00abc"
        writer.close()
        for reader, _ in stalled:
            assert await ended(reader) is None
        await until(lambda: not it.sandbox.connections)
        assert server.visits == [b"\x00abc"]


async def test_without_descriptors_connections_wait(tmp_path: Path) -> None:
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        sock, address = it.prepare(GOOD, server.port)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
        try:
            with contextlib.suppress(BlockingIOError):
                sock.connect(it.tcp_address)
            await until(lambda: it.told("network.limit"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reader, writer = await asyncio.open_connection(sock=sock)
        it.writers.append(writer)
        writer.write(b"\x00abc")
        assert await reader.readexactly(4) == b"\x00abc"
        assert address.startswith("198.18.")


async def test_rates_make_the_sender_wait(tmp_path: Path) -> None:
    async with lab(tmp_path, caps=Caps(upload_rate=1000, download_rate=500)) as it:
        assert it.sandbox.account(1000, 0) == 0
        assert 0.9 < it.sandbox.account(1000, 0) <= 1
        assert 1.9 < it.sandbox.account(0, 1500) <= 2


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Descriptors, whatever way a connection ended."""
    async with (
        Server().listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        firsts = (b"\x00abc", hello_bytes(GOOD), hello_bytes(TWIN), b"GET / HTTP/1.1\r\n\r\n", b"")
        counts = []
        for _ in range(3):
            for first in firsts:
                for name in (GOOD, TWIN):
                    reader, writer = await it.dial(name, server.port)
                    writer.write(first)
                    writer.write_eof()
                    await ended(reader)
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
            await until(lambda: not it.sandbox.connections)
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[2] <= counts[1]


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


async def test_connections_never_get_each_others_bytes(tmp_path: Path) -> None:
    """They share pipes, and some break off while theirs is full."""
    size = 4 << 20

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mark = await reader.readexactly(4)
        writer.write(mark * (size // 4))
        while data := await reader.read(65536):
            assert set(data) <= set(mark)
        await writer.drain()

    async def talk(it: Lab, port: int, number: int) -> None:
        mark = b"\x00%03d" % number
        reader, writer = await it.dial(GOOD, port)
        writer.write(mark * 10_000)
        writer.write_eof()
        assert await ended(reader) == mark * (size // 4)

    async with (
        Server(repeat).listening() as server,
        lab(tmp_path, Rule(host=GOOD), hosts={GOOD: "127.0.0.1"}) as it,
    ):
        clients = []
        for _ in range(4):
            sock, _ = it.prepare(GOOD, server.port)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.get_running_loop().sock_connect(sock, it.tcp_address)
            sock.send(b"\xff\xff\xff\xff")
            clients.append(sock)
        # Until each has bytes that its client does not take.
        await until(lambda: sum(pump._writing for pump in _pumps()) == 4)
        for sock in clients:
            sock.close()
        await until(lambda: not it.sandbox.connections)
        await asyncio.gather(*(talk(it, server.port, number) for number in range(12)))
        await until(lambda: not it.sandbox.connections)


def _pumps() -> list[_Pump]:
    return [each for each in gc.get_objects() if isinstance(each, _Pump)]
