"""Secrets in intercepted requests: where they go in, where they are stopped, what comes back."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import ssl
from collections.abc import Callable

import pytest

from agentkernel.network.intercept.authority import authority_pem
from agentkernel.network.intercept.leaves import keep_authority_in
from agentkernel.network.intercept.relaying import HELD_SECONDS
from agentkernel.network.policy.model import NetworkSetting, Operator, Rule, SecretBinding

from .interception import (
    HOST,
    OK,
    SECONDS,
    Certificates,
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
VALUE = b"sk-live-Zr8Qm2Xc7Vb4Nt6Lp0Ks9Wd3"
PLACEHOLDER = "sk-live-placeholder000000000000001"[: len(VALUE)]
HERE = SecretBinding(reference="u/KEY", env="KEY", placeholder=PLACEHOLDER, hosts=(HOST,))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    state = str(tmp_path_factory.mktemp("state"))
    keep_authority_in(state)
    return ssl.create_default_context(cadata=authority_pem(state))


Make = Callable[..., Sandbox]


@pytest.fixture
def make(certificates: Certificates) -> Make:
    def make(*bindings: SecretBinding, patterns: tuple[str, ...] = ()) -> Sandbox:
        setting = NetworkSetting(
            phases=allowing(Rule(host=HOST), Rule(host="other.example.org")).phases,
            secrets=bindings or (HERE,),
        )
        operator = Operator(upstream_ca=certificates.authority, patterns=patterns)
        return Sandbox(setting=setting, operator=operator, secrets={"u/KEY": VALUE})

    return make


def get(*headers: bytes, target: bytes = b"/p") -> bytes:
    return b"\r\n".join((b"GET %s HTTP/1.1" % target, H[:-2], *headers, b"", b""))


async def test_a_placeholder_becomes_the_value_and_the_event_says_so(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    sandbox = make()
    async with Server(says(OK)).listening(certificates.context()) as server:
        async with guest(sandbox, To(server.port), port=443, trusting=trusting) as client:
            raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode(), b"Accept-Encoding: br")
            assert (await client.ask(raw)).status == 200
        sent = bytes(server.received[0])
    assert b"Authorization: Bearer " + VALUE + b"\r\n" in sent
    assert PLACEHOLDER.encode() not in sent
    assert b"Accept-Encoding: identity\r\n" in sent and b": br" not in sent
    assert sandbox.kinds() == ["network.allow", "network.secret"]
    assert VALUE.decode() not in json.dumps(sandbox.events)


async def test_a_value_with_a_line_feed_makes_no_header_of_its_own(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    sandbox = make()
    sandbox.secrets = {"u/KEY": b"abcdefghijklmnop\r\nX-Other: 1234567890"}
    async with Server(says(OK)).listening(certificates.context()) as server:
        async with guest(sandbox, To(server.port), port=443, trusting=trusting) as client:
            raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode())
            assert (await client.ask(raw)).status == 400
        assert b"".join(server.received) == b""


async def test_basic_credentials_are_decoded_swapped_and_encoded(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    async with (
        Server(says(OK)).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        credentials = base64.b64encode(b"me:" + PLACEHOLDER.encode())
        assert (await client.ask(get(b"Authorization: Basic " + credentials))).status == 200
        assert base64.b64encode(b"me:" + VALUE) in bytes(server.received[0])


async def test_a_value_is_never_sent_to_a_server_that_is_not_trusted(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    context = certificates.context(self_signed=True)
    sandbox = make()
    async with Server(says(OK)).listening(context) as server:
        async with guest(sandbox, To(server.port), port=443, trusting=trusting) as client:
            raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode())
            assert (await client.ask(raw)).status == 502
        assert b"".join(server.received) == b""
    assert sandbox.kinds() == ["network.allow", "network.fault"]


BLOCKED = {
    "a placeholder on plain HTTP": (80, get(b"Authorization: Bearer " + PLACEHOLDER.encode())),
    "a value in a header": (443, get(b"X-Note: " + VALUE)),
    "a value in the path": (443, get(target=b"/p/" + VALUE)),
    "a value on plain HTTP": (80, get(b"X-Note: " + VALUE)),
    "a value in a body": (
        443,
        b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % len(VALUE) + VALUE,
    ),
    "a value in chunks": (
        443,
        b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
        b"a\r\n" + VALUE[:10] + b"\r\n%x\r\n" % (len(VALUE) - 10) + VALUE[10:] + b"\r\n0\r\n\r\n",
    ),
    "a value in base64": (443, get(b"X-Note: " + base64.b64encode(b"x" + VALUE))),
    "a value in a trailer": (
        443,
        b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Note: " + VALUE + b"\r\n\r\n",
    ),
    "a pattern": (443, get(b"X-Note: TEST-012345678901")),
}


async def hears_all(heard: Heard, writer: asyncio.StreamWriter) -> None:
    """Answers only what is whole."""
    head = await heard.head()
    if length := re.search(rb"Content-Length: (\d+)", head):
        await heard.exactly(int(length[1]))
    elif b"chunked" in head:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += await heard.exactly(1)
    writer.write(OK)
    await writer.drain()


@pytest.mark.parametrize("name", BLOCKED)
async def test_what_must_not_leave_is_stopped(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make, name: str
) -> None:
    port, raw = BLOCKED[name]
    sandbox = make(patterns=("TEST-[0-9]{12}",))
    tls = port == 443
    async with Server(hears_all).listening(certificates.context() if tls else None) as server:
        async with guest(
            sandbox, To(server.port), port=port, trusting=trusting if tls else None
        ) as client:
            response = await client.ask(raw)
            assert await client.rest() == b""
        left = b"".join(server.received)
    assert response.status == 403
    assert response.error["code"] == "network_blocked"
    assert sandbox.kinds()[-1] == "network.blocked"
    for told in (json.dumps(sandbox.events), response.body.decode(), left.decode("latin-1")):
        assert VALUE.decode() not in told
        assert "TEST-0123" not in told


async def test_the_same_requests_pass_when_they_hold_something_else(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    for name, (port, raw) in BLOCKED.items():
        harmless = (
            raw.replace(VALUE, b"n" * len(VALUE))
            .replace(PLACEHOLDER.encode(), b"n" * len(VALUE))
            .replace(VALUE[10:], b"n" * len(VALUE[10:]))
            .replace(base64.b64encode(b"x" + VALUE), b"bm90aGluZw==")
            .replace(b"TEST-", b"TESS-")
        )
        tls = port == 443
        async with (
            Server(hears_all).listening(certificates.context() if tls else None) as server,
            guest(
                make(patterns=("TEST-[0-9]{12}",)),
                To(server.port),
                port=port,
                trusting=trusting if tls else None,
            ) as client,
        ):
            assert (await client.ask(harmless)).status == 200, name


async def test_a_compressed_body_is_looked_through_while_others_get_their_turn(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    turns = 0

    async def ticking() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with (
        Server(hears_all).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        body = gzip.compress(bytes(32 << 20) + VALUE)
        head = b"POST /p HTTP/1.1\r\n" + H + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        ticker = asyncio.create_task(ticking())
        response = await client.ask(head % len(body) + body)
        ticker.cancel()
    assert response.error["code"] == "network_blocked"
    assert turns > len(body) // 4096


async def test_another_hosts_placeholder_is_stopped_before_anything_is_dialled(
    trusting: ssl.SSLContext, make: Make
) -> None:
    sandbox = make(
        SecretBinding(
            reference="u/KEY", env="KEY", placeholder=PLACEHOLDER, hosts=("other.example.org",)
        )
    )
    dialler = To(1)
    async with guest(sandbox, dialler, port=443, trusting=trusting) as client:
        response = await client.ask(get(b"Authorization: Bearer " + PLACEHOLDER.encode()))
    assert (response.status, response.error["code"]) == (403, "network_blocked")
    assert dialler.dialled == 0


async def test_nothing_is_put_in_for_tls_that_names_nobody(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    nameless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nameless.check_hostname = False
    nameless.verify_mode = ssl.CERT_NONE
    raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode())
    for name, status in ((HOST, 200), ("", 403)):
        async with (
            Server(says(OK)).listening(certificates.context()) as server,
            guest(make(), To(server.port), port=443, trusting=nameless, name=name) as client,
        ):
            assert (await client.ask(raw)).status == status


@pytest.mark.parametrize("port", [80, 443])
async def test_a_secret_bound_to_a_plain_port_is_not_put_in(make: Make, port: int) -> None:
    sandbox = make(
        SecretBinding(
            reference="u/KEY", env="KEY", placeholder=PLACEHOLDER, hosts=(f"{HOST}:{port}",)
        )
    )
    dialler = To(1)
    async with guest(sandbox, dialler, port=port) as client:
        raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode())
        response = await client.ask(raw.replace(HOST.encode(), b"%s:%d" % (HOST.encode(), port)))
    assert (response.status, response.error["code"]) == (403, "network_blocked")
    assert "TLS" in response.error["message"]
    assert dialler.dialled == 0


def reflecting(body: bytes, *headers: bytes, pieces: int = 1) -> Handler:
    async def handle(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        lines = (b"HTTP/1.1 200 " + VALUE, b"Content-Length: %d" % len(body), *headers, b"", b"")
        writer.write(b"\r\n".join(lines))
        size = -(-len(body) // pieces)
        for at in range(0, len(body), size):
            writer.write(body[at : at + size])
            await writer.drain()

    return handle


@pytest.mark.parametrize(
    ("body", "headers", "pieces"),
    [
        (b"you sent " + VALUE + b"!", (b"X-Echo: " + VALUE,), 1),
        (b"you sent " + VALUE + b"!", (), 12),
        (b"you sent " + base64.b64encode(VALUE), (), 1),
        (b"you sent " + VALUE.hex().encode(), (), 1),
        (gzip.compress(b"you sent " + VALUE), (b"Content-Encoding: gzip",), 3),
    ],
)
async def test_a_reflected_value_comes_back_as_its_placeholder(
    certificates: Certificates,
    trusting: ssl.SSLContext,
    make: Make,
    body: bytes,
    headers: tuple[bytes, ...],
    pieces: int,
) -> None:
    handler = reflecting(body, *headers, pieces=pieces)
    async with (
        Server(handler).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        response = await client.ask(get(b"Authorization: Bearer " + PLACEHOLDER.encode()))
    everything = repr(response.headers).encode() + response.body
    for form in (VALUE, base64.b64encode(VALUE)[:40], VALUE.hex().encode()):
        assert form not in everything
    assert response.body.startswith(b"you sent ") and len(response.body) > len(VALUE)
    assert response.header("content-encoding") is None
    if headers and headers[0].startswith(b"X-Echo"):
        assert response.header("x-echo") == PLACEHOLDER
        assert response.body == b"you sent " + PLACEHOLDER.encode() + b"!"


async def test_a_stream_that_pauses_where_a_value_might_begin_goes_on(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    step = asyncio.Event()

    async def stream(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"9\r\n" + VALUE[:9] + b"\r\n")
        await writer.drain()
        await step.wait()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with (
        Server(stream).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        await client.send(get())
        await client.head()
        async with asyncio.timeout(SECONDS):
            assert await client.reader.readexactly(14) == b"9\r\n" + VALUE[:9] + b"\r\n"
            step.set()
            assert await client.reader.readexactly(5) == b"0\r\n\r\n"


async def test_a_pause_in_the_middle_of_a_value_does_not_let_it_pass(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    paused = asyncio.Event()

    async def stream(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (VALUE[:9], VALUE[9:20], VALUE[20:-1]):
            writer.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
            await writer.drain()
            await paused.wait()
            await asyncio.sleep(3 * HELD_SECONDS)  # this is the attack
        writer.write(b"1\r\n" + VALUE[-1:] + b"\r\n0\r\n\r\n")
        await writer.drain()

    async with (
        Server(stream).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        await client.send(get())
        await client.head()
        async with asyncio.timeout(SECONDS):
            # The first nine are its vendor's prefix and one more: they go on in the pause.
            first = await client.reader.readexactly(14)
            assert first == b"9\r\n" + VALUE[:9] + b"\r\n"
            paused.set()
            rest = await client.reader.readuntil(b"0\r\n\r\n")
    assert VALUE[10:16] not in rest and PLACEHOLDER[9:].encode() in rest


async def test_a_compression_that_cannot_be_searched_is_refused(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    handler = reflecting(b"????", b"Content-Encoding: br")
    async with (
        Server(handler).listening(certificates.context()) as server,
        guest(make(), To(server.port), port=443, trusting=trusting) as client,
    ):
        response = await client.ask(get())
    assert (response.status, response.error["check"]) == (502, "response")


@pytest.mark.parametrize("size", [100, 200_000])
async def test_a_body_with_a_swap_of_another_length_is_framed_anew(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make, size: int
) -> None:
    longer = SecretBinding(
        reference="u/KEY", env="KEY", placeholder="p0" * 9, hosts=(HOST,), body=True
    )
    body = b"x" * size + b"p0" * 9 + b"y"
    expected = b"x" * size + VALUE + b"y"

    async def reads(heard: Heard, writer: asyncio.StreamWriter) -> None:
        head = await heard.head()
        if b"Content-Length" in head:
            got = await heard.exactly(len(expected))
        else:
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                got += await heard.read()
        writer.write(OK)
        await writer.drain()

    async with Server(reads).listening(certificates.context()) as server:
        async with guest(make(longer), To(server.port), port=443, trusting=trusting) as client:
            head = b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % len(body)
            assert (await client.ask(head + body)).status == 200
        head, _, sent = bytes(server.received[0]).partition(b"\r\n\r\n")
    assert VALUE + b"y" in sent
    assert (b"Content-Length: %d" % len(expected) in head) == (size == 100)
    assert (b"chunked" in head) == (size != 100)


async def test_the_first_secret_counts_for_the_next_request(
    certificates: Certificates, trusting: ssl.SSLContext, make: Make
) -> None:
    """And so does a value that is rotated."""
    sandbox = make()
    setting, sandbox.setting = sandbox.setting, allowing()
    raw = get(b"Authorization: Bearer " + PLACEHOLDER.encode())
    async with (
        Server(says(OK, times=3)).listening(certificates.context()) as server,
        guest(sandbox, To(server.port), port=443, trusting=trusting) as client,
    ):
        await client.ask(raw)
        assert VALUE not in bytes(server.received[0])
        sandbox.setting = setting
        await client.ask(raw)
        assert VALUE in bytes(server.received[0])
        sandbox.secrets = {"u/KEY": VALUE[::-1]}
        await client.ask(raw)
        assert VALUE[::-1] in bytes(server.received[0])
