"""Programs inside that speak to the gateway as a proxy: CONNECT, absolute requests, SOCKS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentkernel.network.policy.model import Rule

from .gateway_lab import Server, ended, hello_bytes, lab

GOOD = "good.example.org"
TWIN = "twin.example.org"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


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
