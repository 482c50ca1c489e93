"""Messages of every shape, both ways, one after another, big ones in little memory."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import tracemalloc

import pytest

from agentkernel.network.gateway.flow import Refused
from agentkernel.network.intercept import exchange, heads, upload
from agentkernel.network.policy.model import Rule

from .interception import (
    HOST,
    OK,
    SECONDS,
    Handler,
    Heard,
    Sandbox,
    Server,
    To,
    allowing,
    guest,
    says,
)

H = b"Host: api.example.org\r\n"
GET = b"GET /p HTTP/1.1\r\n" + H + b"\r\n"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


async def test_responses_without_a_body_keep_the_connection_in_step() -> None:
    responses = {
        b"HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
        b"DELETE": b"HTTP/1.1 204 No Content\r\n\r\n",
        b"GET": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n",
        b"PUT": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"POST": OK,
    }

    async def by_method(heard: Heard, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            writer.write(responses[(await heard.head()).split()[0]])
            await writer.drain()

    dialler = To(0)
    async with Server(by_method).listening() as server, guest(Sandbox(), dialler) as client:
        dialler.port = server.port
        for method, raw in responses.items():
            response = await client.ask(method + b" / HTTP/1.1\r\n" + H + b"\r\n", method.decode())
            assert response.status == int(raw.split()[1])
            if method in (b"HEAD", b"GET"):
                assert response.header("content-length") == "500"
        assert response.body == b"hello"
    assert dialler.dialled == 1  # all over one connection


async def test_chunks_both_ways_and_their_trailers() -> None:
    async def echo(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += await heard.exactly(1)
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
            b"2\r\nhe\r\n3;odd\r\nllo\r\n0\r\nX-Sum: 7\r\n\r\n"
        )
        await writer.drain()

    async with (
        Server(echo).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        response = await client.ask(
            b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Mine: 1\r\n\r\n",
        )
        assert response.body == b"hello"
        assert response.header("trailer x-sum") == "7"
        sent = bytes(server.received[0]).partition(b"\r\n\r\n")[2]
        assert sent == b"3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Mine: 1\r\n\r\n"


@pytest.mark.parametrize("name", [b"Host", b"content-length", b"AUTHORIZATION", b"Cookie"])
async def test_what_belongs_to_the_head_is_not_taken_behind_the_body(name: bytes) -> None:
    async def wait(heard: Heard, _: asyncio.StreamWriter) -> None:
        await heard.head()
        while await heard.read():
            pass

    async with (
        Server(wait).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        response = await client.ask(
            b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\n" + name + b": 7\r\n\r\n",
        )
        assert response.status == 400
        assert name not in bytes(server.received[0]).partition(b"\r\n\r\n")[2]


async def test_a_body_that_ends_with_the_connection_is_passed_in_chunks() -> None:
    async with (
        Server(says(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        response = await client.ask(GET)
        assert response.body == b"until the end"
        assert response.header("transfer-encoding") == "chunked"


async def test_an_old_client_gets_neither_chunks_nor_a_second_request() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    async with (
        Server(says(raw)).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        response = await client.ask(b"GET /p HTTP/1.0\r\n" + H + b"\r\n")
        assert (response.body, response.header("transfer-encoding")) == (b"hello", None)


async def test_a_client_that_waits_for_100_continue_gets_it_from_the_server() -> None:
    async def careful(heard: Heard, writer: asyncio.StreamWriter) -> None:
        assert b"expect: 100-continue" in (await heard.head()).lower()
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await heard.exactly(3) == b"abc"
        writer.write(OK)
        await writer.drain()

    async with (
        Server(careful).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        await client.send(
            b"PUT /p HTTP/1.1\r\n" + H + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        assert (await client.head())[0] == 100
        assert (await client.ask(b"abc")).status == 200
        # and the connection goes on
        await client.send(b"PUT /p HTTP/1.1\r\n")


async def test_a_refusal_before_the_body_reaches_a_client_that_is_sending_it() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    async with (
        Server(says(refusal)).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        response = await client.ask(
            b"PUT /p HTTP/1.1\r\n" + H + b"Content-Length: 100000000\r\n\r\n" + bytes(100000)
        )
        assert (response.status, response.body) == (413, b"no")
        assert await client.rest() == b""


async def test_a_denied_client_reads_why_though_it_is_still_sending() -> None:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST, methods=("GET",))))
    async with guest(sandbox, To(1)) as client:
        head = b"PUT /p HTTP/1.1\r\n" + H + b"Content-Length: 500000\r\n\r\n"
        assert (await client.ask(head + bytes(500000))).status == 403


async def test_events_of_a_stream_arrive_one_by_one() -> None:
    step = asyncio.Event()

    async def stream(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(3):
            writer.write(b"data: %d\n\n" % number)
            await writer.drain()
            await step.wait()
            step.clear()

    async with (
        Server(stream).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        await client.send(GET)
        assert (await client.head())[0] == 200
        for number in range(3):
            async with asyncio.timeout(SECONDS):
                assert int(await client.reader.readline(), 16) == 9
                assert await client.reader.readexactly(11) == b"data: %d\n\n\r\n" % number
            step.set()  # only now does the server say more


@pytest.mark.parametrize("chunked", [False, True])
async def test_big_bodies_pass_both_ways_in_little_memory(chunked: bool) -> None:
    """64 MiB each way, to a client that reads slowly at first."""
    block = hashlib.sha256(b"block").digest() * 2048
    count = 1024

    async def echo(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        if chunked:
            while not (await heard.read()).endswith(b"0\r\n\r\n"):
                heard.forget()
        else:
            for _ in range(count):
                assert await heard.exactly(len(block)) == block
                heard.forget()
        coding = (
            b"Transfer-Encoding: chunked"
            if chunked
            else b"Content-Length: %d" % (len(block) * count)
        )
        writer.write(b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n\r\n")
        for _ in range(count):
            writer.write(b"10000\r\n" + block + b"\r\n" if chunked else block)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    sandbox = Sandbox()
    async with Server(echo).listening() as server, guest(sandbox, To(server.port)) as client:
        tracemalloc.start()
        try:
            coding = (
                b"Transfer-Encoding: chunked"
                if chunked
                else b"Content-Length: %d" % (len(block) * count)
            )
            await client.send(b"PUT /p HTTP/1.1\r\n" + H + coding + b"\r\n\r\n")
            for _ in range(count):
                await client.send(b"10000\r\n" + block + b"\r\n" if chunked else block)
            if chunked:
                await client.send(b"0\r\n\r\n")
            assert (await client.head())[0] == 200
            got = 0
            async with asyncio.timeout(30):
                while got < len(block) * count:
                    data = await client.reader.read(1 << 16)
                    assert data
                    got += len(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8 << 20, peak
    assert sandbox.up > len(block) * count and sandbox.down > len(block) * count


async def test_a_response_that_is_cut_off_is_not_taken_for_whole() -> None:
    for raw in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ):
        sandbox = Sandbox()
        async with (
            Server(says(raw)).listening() as server,
            guest(sandbox, To(server.port)) as client,
        ):
            await client.send(GET)
            assert (await client.head())[0] == 200
            assert not (await client.rest()).endswith(b"0\r\n\r\n")
        assert sandbox.kinds() == ["network.allow", "network.fault"]


@pytest.mark.parametrize(
    "raw",
    [
        b"nothing of the kind\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 40,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * heads.HEAD_BYTES + b"\r\n\r\n",
        b"",
    ],
)
async def test_a_response_that_is_none_is_a_fault_with_an_answer(raw: bytes) -> None:
    sandbox = Sandbox()
    async with (
        Server(says(raw)).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        response = await client.ask(GET)
        assert (response.status, response.error["check"]) == (502, "response")
        assert await client.rest() == b""
    assert sandbox.kinds() == ["network.allow", "network.fault"]


async def test_a_connection_that_the_server_closed_while_idle_is_made_anew() -> None:
    async with Server(says(OK)).listening() as server:
        dialler = To(server.port)
        async with guest(Sandbox(), dialler) as client:
            for _ in range(3):
                assert (await client.ask(GET)).body == b"hello"
        assert dialler.dialled == len(server.received) == 3


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"])
async def test_a_server_that_breaks_off_is_a_fault(begun: bytes) -> None:
    read = asyncio.Event()

    async def resets(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        if begun:
            writer.write(begun)
            await read.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    sandbox = Sandbox()
    async with (
        Server(resets).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        await client.send(GET)
        status, _ = await client.head()
        assert status == (200 if begun else 502)
        read.set()
        await client.rest()
    assert sandbox.kinds() == ["network.allow", "network.fault"]


async def test_a_body_is_not_sent_into_a_connection_that_was_closed_while_idle() -> None:
    """It can't be repeated, so that has to be seen before."""
    closed = asyncio.Event()

    async def once(heard: Heard, writer: asyncio.StreamWriter) -> None:
        data = await heard.head()
        if data.startswith(b"POST"):
            await heard.exactly(3)
        writer.write(OK)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with (
        Server(once).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        for _ in range(3):
            response = await client.ask(
                b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nabc"
            )
            assert response.status == 200
            await closed.wait()
            closed.clear()


async def test_what_cannot_be_dialled_is_told_apart_by_why() -> None:
    for denied, status, kind in ((True, 403, "network.deny"), (False, 502, "network.fault")):
        sandbox = Sandbox()
        dialler = To(1, refusal=Refused("it is a private address", denied=denied))
        async with guest(sandbox, dialler) as client:
            response = await client.ask(GET)
        assert response.status == status
        assert response.error["message"] == "it is a private address"
        assert sandbox.kinds()[-1] == kind


async def test_a_cap_ends_the_connection_and_is_told() -> None:
    sandbox = Sandbox(most_down=1000)
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100000)
    async with (
        Server(says(raw)).listening() as server,
        guest(sandbox, To(server.port)) as client,
    ):
        await client.send(GET)
        assert len(await client.rest()) < 1000
    assert sandbox.kinds() == ["network.allow", "network.limit"]


async def test_a_client_that_goes_away_takes_its_request_along() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def waits(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        asked.set()
        try:
            await heard.read()
        finally:
            gone.set()

    async with Server(waits).listening() as server, asyncio.timeout(SECONDS):
        async with guest(Sandbox(), To(server.port)) as client:
            await client.send(GET)
            await asked.wait()
            # A close that is more than the end of one half.
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await gone.wait()


@pytest.mark.parametrize(
    ("begun", "module", "bound"),
    [
        (b"GET /p HT", heads, "HEAD_SECONDS"),
        (b"PUT /p HTTP/1.1\r\n" + H + b"Content-Length: 9\r\n\r\nabc", upload, "BODY_SECONDS"),
    ],
)
async def test_a_client_that_never_comes_to_an_end_is_told_so(
    monkeypatch: pytest.MonkeyPatch, begun: bytes, module: object, bound: str
) -> None:
    monkeypatch.setattr(module, bound, 0.05)

    async def waits(heard: Heard, writer: asyncio.StreamWriter) -> None:
        while await heard.read():
            pass

    async with Server(waits).listening() as server, guest(Sandbox(), To(server.port)) as client:
        response = await client.ask(begun)
        assert response.status == 408
        assert await client.rest() == b""


async def test_an_idle_connection_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "IDLE_SECONDS", 0.05)
    sandbox = Sandbox()
    async with guest(sandbox, To(1)) as client:
        assert await client.rest() == b""
    assert sandbox.events == []


async def test_a_half_closed_client_still_gets_its_answer_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        Server(says(OK)).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        await client.send(GET)
        client.writer.write_eof()
        assert (await client.response()).body == b"hello"
    monkeypatch.setattr(exchange, "HALF_CLOSED_SECONDS", 0.05)

    async def waits(heard: Heard, writer: asyncio.StreamWriter) -> None:
        while await heard.read():
            pass

    silent: Handler = waits
    async with (
        Server(silent).listening() as server,
        guest(Sandbox(), To(server.port)) as client,
    ):
        await client.send(GET)
        client.writer.write_eof()
        assert (await client.response()).status == 502
