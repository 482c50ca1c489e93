"""TLS that is intercepted: the authority, its leaves, and trust in the far side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from agentkernel.errors import StateCorruptError
from agentkernel.network.gateway.flow import Flow
from agentkernel.network.intercept import leaves, wire
from agentkernel.network.intercept.authority import authority_pem, open_authority
from agentkernel.network.intercept.leaves import Leaves, current_leaves, keep_authority_in
from agentkernel.network.intercept.serving import serve_tls
from agentkernel.network.policy.judging import judge_connection
from agentkernel.network.policy.model import Operator, Rule

from .interception import (
    HOST,
    OK,
    SECONDS,
    Certificates,
    Heard,
    Sandbox,
    Server,
    To,
    allowing,
    guest,
    says,
    socket_pair,
)

GET = b"GET /path HTTP/1.1\r\nHost: api.example.org\r\n\r\n"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """What a client inside trusts: this installation's authority, and nothing else."""
    state = str(tmp_path_factory.mktemp("state"))
    keep_authority_in(state)
    context = ssl.create_default_context(cadata=authority_pem(state))
    context.set_alpn_protocols(["h2", "http/1.1"])
    # As Python 3.13 and others check by default.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.fixture
def sandbox(certificates: Certificates) -> Sandbox:
    return Sandbox(operator=Operator(upstream_ca=certificates.authority))


async def test_a_request_passes_and_both_sides_are_verified(
    certificates: Certificates, trusting: ssl.SSLContext, sandbox: Sandbox
) -> None:
    async with (
        Server(says(OK)).listening(certificates.context()) as server,
        guest(sandbox, To(server.port), port=443, trusting=trusting) as client,
    ):
        response = await client.ask(GET)
        tls = client.writer.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "http/1.1"
        leaf = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True))
    assert (response.status, response.body) == (200, b"hello")
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert sandbox.kinds() == ["network.allow"]


@pytest.mark.parametrize(
    ("check", "host", "days", "self_signed"),
    [
        ("expired", HOST, (-9, -2), False),
        ("not_yet_valid", HOST, (2, 9), False),
        ("self_signed", HOST, (-1, 9), True),
        ("wrong_name", "other.example.org", (-1, 9), False),
    ],
)
async def test_a_server_that_is_not_trusted_gets_no_byte_of_the_request(
    certificates: Certificates,
    trusting: ssl.SSLContext,
    sandbox: Sandbox,
    check: str,
    host: str,
    days: tuple[int, int],
    self_signed: bool,
) -> None:
    context = certificates.context(host, days=days, self_signed=self_signed)
    async with Server(says(OK)).listening(context) as server:
        dialler = To(server.port)
        async with guest(sandbox, dialler, port=443, trusting=trusting) as client:
            response = await client.ask(GET)
            assert await client.rest() == b""
        assert dialler.dialled == 1
        assert b"".join(server.received) == b""
    assert response.status == 502
    assert (response.error["code"], response.error["check"]) == ("network_fault", check)
    assert sandbox.kinds() == ["network.allow", "network.fault"]
    assert response.error["message"] == sandbox.events[-1]["reason"]


async def test_a_server_of_an_authority_that_only_the_test_knows_is_not_trusted_by_default(
    certificates: Certificates, trusting: ssl.SSLContext
) -> None:
    sandbox = Sandbox()
    async with (
        Server(says(OK)).listening(certificates.context()) as server,
        guest(sandbox, To(server.port), port=443, trusting=trusting) as client,
    ):
        response = await client.ask(GET)
    assert response.error["check"] == "unknown_issuer"


async def test_a_file_of_authorities_that_is_none_is_named(
    trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    for path in ("empty.pem", "missing.pem"):
        sandbox = Sandbox(operator=Operator(upstream_ca=str(tmp_path / path)))
        async with (
            Server(says(OK)).listening() as server,
            guest(sandbox, To(server.port), port=443, trusting=trusting) as client,
        ):
            response = await client.ask(GET)
        assert response.error["check"] == "upstream_ca"


async def test_a_server_without_tls_is_a_fault(trusting: ssl.SSLContext, sandbox: Sandbox) -> None:
    async def speaks_plainly(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.read(1)
        writer.write(OK)
        await writer.drain()

    async with (
        Server(speaks_plainly).listening() as server,
        guest(sandbox, To(server.port), port=443, trusting=trusting) as client,
    ):
        response = await client.ask(GET)
    assert (response.status, response.error["check"]) == (502, "tls")


async def test_a_denied_request_reads_its_answer_through_tls(trusting: ssl.SSLContext) -> None:
    sandbox = Sandbox(setting=allowing(Rule(host=HOST, paths=("/allowed",))))
    dialler = To(1)
    async with guest(sandbox, dialler, port=443, trusting=trusting) as client:
        response = await client.ask(GET)
        assert await client.rest() == b""
    assert (response.status, response.error["code"]) == (403, "network_denied")
    assert dialler.dialled == 0


async def test_a_client_that_trusts_others_breaks_off_and_the_event_says_how_to_pass_it(
    certificates: Certificates, trusting: ssl.SSLContext, sandbox: Sandbox
) -> None:
    pinned = ssl.create_default_context(cafile=certificates.authority)
    dialler = To(1)
    with pytest.raises(ssl.SSLCertVerificationError):
        async with guest(sandbox, dialler, port=443, trusting=pinned):
            pass
    assert sandbox.kinds() == ["network.fault"]
    assert "splice:" in sandbox.events[0]["reason"]
    assert dialler.dialled == 0


async def test_a_name_other_than_the_connections_gets_no_certificate(
    trusting: ssl.SSLContext, sandbox: Sandbox
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with guest(sandbox, To(1), port=443, trusting=trusting, name="other.example.org"):
            pass
    assert sandbox.kinds() == ["network.fault"]


async def test_a_client_that_never_says_hello_is_not_waited_for(
    trusting: ssl.SSLContext, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 0.05)
    inner, outer = socket_pair()
    with inner:
        verdict = judge_connection(sandbox.setting.policy, None, HOST, 443)
        await asyncio.wait_for(
            serve_tls(Flow(sandbox, outer, HOST, 443, "tls", verdict), To(1)), SECONDS
        )
        assert outer.fileno() == -1
    assert sandbox.kinds() == ["network.fault"]


async def test_a_flow_that_is_cancelled_is_closed(
    certificates: Certificates, trusting: ssl.SSLContext, sandbox: Sandbox
) -> None:
    """As when the policy changes under it."""
    asked = asyncio.Event()

    async def waits(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await heard.head()
        asked.set()
        await heard.read()

    inner, outer = socket_pair()
    async with (
        Server(waits).listening(certificates.context()) as server,
        asyncio.timeout(SECONDS),
    ):
        verdict = judge_connection(sandbox.setting.policy, None, HOST, 443)
        flow = Flow(sandbox, outer, HOST, 443, "tls", verdict)
        served = asyncio.create_task(serve_tls(flow, To(server.port)))
        reader, writer = await asyncio.open_connection(
            sock=inner, ssl=trusting, server_hostname=HOST
        )
        writer.write(GET)
        await asked.wait()
        served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await served
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        writer.transport.abort()


def test_the_authority_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    first = authority_pem(str(tmp_path))
    assert authority_pem(str(tmp_path)) == first
    directory = tmp_path / "network" / "authority"
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(directory / "key.pem").st_mode) == 0o600
    assert sorted(path.name for path in directory.parent.iterdir()) == [
        "authority",
        "authority.lock",
    ]


def test_makers_at_the_same_time_agree(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "agentkernel.network.intercept.authority", str(tmp_path)]
    makers = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(4)]
    made = {maker.communicate(timeout=30)[0] for maker in makers}
    assert [maker.returncode for maker in makers] == [0] * 4
    assert made == {authority_pem(str(tmp_path)).encode()}


def test_a_damaged_authority_is_named_not_replaced(tmp_path: Path) -> None:
    authority_pem(str(tmp_path))
    key = tmp_path / "network" / "authority" / "key.pem"
    key.write_text("no key")
    with pytest.raises(StateCorruptError, match="damaged"):
        authority_pem(str(tmp_path))
    assert key.read_text() == "no key"


def test_an_authority_that_was_replaced_signs_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "_places", [])
    keep_authority_in(str(tmp_path))
    first = current_leaves()
    assert current_leaves() is first
    shutil.rmtree(tmp_path / "network" / "authority")
    authority_pem(str(tmp_path))
    second = current_leaves()
    assert second is not first
    assert current_leaves() is second


def test_contexts_are_kept_and_no_key_of_theirs_is_on_disk(tmp_path: Path) -> None:
    made = Leaves(open_authority(str(tmp_path)))
    before = {path for path in tmp_path.rglob("*")}
    first = made.context(HOST)
    assert made.context(HOST) is first
    assert made.context("192.0.2.7") is not first
    assert {path for path in tmp_path.rglob("*")} == before
