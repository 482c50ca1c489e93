"""TLS and proxies: who is trusted, and that nobody is asked in the clear instead."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agentkernel.errors import HostError, RegistryError
from agentkernel.images.oci.model import Platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.pulling import Pulled, pull
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore
from tests.images.conftest import QUICK
from tests.images.registry_tool import make_image, make_layer
from tests.images.scripted import Answer, Scripted, ranged

IMAGE = make_image([make_layer({"data": b"x" * 1000})])
LAYER = IMAGE.layers[0]
CONTENT = IMAGE.blobs[LAYER]
BLOB = f"/v2/app/blobs/{LAYER}"
NAME = "registry.test"


@dataclass(frozen=True)
class Certificate:
    authority: Path
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For NAME and 127.0.0.1, signed by itself: its own authority."""
    directory = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "ca.crt", directory / "key.pem")
    return Certificate(directory / "ca.crt", context)


@pytest.fixture
async def server(certificate: Certificate) -> AsyncIterator[Scripted]:
    async with Scripted(tls=certificate.context) as running:
        running.serve(IMAGE, "app", "1")
        yield running


@pytest.fixture
def trusting(certificate: Certificate) -> RegistrySettings:
    return replace(QUICK, upstream_ca=str(certificate.authority))


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name is this machine's; which were asked for."""
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **more: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


async def pulled(address: str, store: ImageStore, settings: RegistrySettings) -> Pulled:
    return await pull(
        store,
        parse_reference(f"{address}/app:1"),
        settings=settings,
        platform=Platform(architecture="amd64", os="linux"),
    )


@pytest.mark.parametrize("host", ["127.0.0.1", NAME])
async def test_nobody_is_trusted_without_an_authority(
    server: Scripted, store: ImageStore, trusting: RegistrySettings, host: str
) -> None:
    """Nor asked in the clear, not even on this machine."""
    address = f"{host}:{server.port}"
    with pytest.raises(RegistryError, match="was not trusted: self-signed certificate") as caught:
        await pulled(address, store, QUICK)
    assert f"/etc/docker/certs.d/{address}/ca.crt" in str(caught.value.hint)
    assert server.requests == []
    assert (await pulled(address, store, trusting)).digest == IMAGE.digest


async def test_authorities_for_one_host_as_docker_has_them(
    server: Scripted, store: ImageStore, certificate: Certificate, tmp_path: Path
) -> None:
    place = tmp_path / "certs.d" / f"{NAME}:{server.port}"
    place.mkdir(parents=True)
    settings = replace(QUICK, certificates=str(tmp_path / "certs.d"))
    (place / "ca.crt").write_bytes(certificate.authority.read_bytes())
    assert (await pulled(f"{NAME}:{server.port}", store, settings)).digest == IMAGE.digest
    with pytest.raises(RegistryError, match="was not trusted"):
        await pulled(f"127.0.0.1:{server.port}", store, settings)
    (place / "damaged.crt").write_text("nothing")
    with pytest.raises(HostError, match=r"damaged\.crt can't be read"):
        await pulled(f"{NAME}:{server.port}", store, settings)


async def test_a_certificate_for_another_name(
    server: Scripted, store: ImageStore, trusting: RegistrySettings
) -> None:
    with pytest.raises(RegistryError, match="was not trusted: Hostname mismatch"):
        await pulled(f"other.test:{server.port}", store, trusting)
    assert server.requests == []


async def test_a_connection_for_one_name_carries_nothing_for_another(
    server: Scripted, store: ImageStore, trusting: RegistrySettings
) -> None:
    """Both names mean one address, and a connection to it is open."""
    server.on(BLOB, Answer(307, b"", {"Location": f"https://other.test:{server.port}/layer"}))
    server.on("/layer", ranged(CONTENT))
    with pytest.raises(RegistryError, match="was not trusted: Hostname mismatch"):
        await pulled(f"{NAME}:{server.port}", store, trusting)
    assert server.asked("/layer") == []
    server.on(BLOB, Answer(307, b"", {"Location": f"https://127.0.0.1:{server.port}/layer"}))
    assert (await pulled(f"{NAME}:{server.port}", store, trusting)).digest == IMAGE.digest


async def test_plain_http_where_tls_should_be(store: ImageStore) -> None:
    async with Scripted() as plain:
        plain.serve(IMAGE, "app", "1")
        with pytest.raises(RegistryError, match="does not speak TLS") as caught:
            await pulled(f"{NAME}:{plain.port}", store, QUICK)
        assert "images.insecure" in str(caught.value.hint)
        assert plain.requests == []
        named = replace(QUICK, insecure=frozenset({f"{NAME}:{plain.port}"}))
        assert (await pulled(f"{NAME}:{plain.port}", store, named)).digest == IMAGE.digest


async def test_a_login_over_tls_goes_to_the_realm(
    server: Scripted, store: ImageStore, trusting: RegistrySettings, home: Path
) -> None:
    address = f"{NAME}:{server.port}"
    pair = base64.b64encode(b"alice:word").decode()
    (home / ".docker").mkdir()
    body = {"auths": {address: {"auth": pair}}}
    (home / ".docker" / "config.json").write_text(json.dumps(body))
    closed = {"WWW-Authenticate": f'Bearer realm="https://127.0.0.1:{server.port}/token"'}
    good = Answer(200, IMAGE.manifest, {"Content-Type": IMAGE.media_type})
    server.on(
        "/v2/app/manifests/1",
        lambda request: good if request.authorization == "Bearer t" else Answer(401, b"", closed),
    )
    server.on("/token", Answer(200, b'{"token": "t"}'))
    assert (await pulled(address, store, trusting)).digest == IMAGE.digest
    assert [each.authorization for each in server.asked("/token")] == [f"Basic {pair}"]


# -- proxies -------------------------------------------------------------------------------------


async def test_through_the_machines_proxy(
    server: Scripted,
    store: ImageStore,
    trusting: RegistrySettings,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
) -> None:
    """It resolves names, and its own login is for itself alone."""
    address = f"{NAME}:{server.port}"
    async with Scripted() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:word@{proxy.address}")
        assert (await pulled(address, store, trusting)).digest == IMAGE.digest
        assert {request.path for request in proxy.requests} == {address}
        basic = base64.b64encode(b"user:word").decode()
        assert {each.headers["proxy-authorization"] for each in proxy.requests} == {
            f"Basic {basic}"
        }
        assert not any("proxy-authorization" in request.headers for request in server.requests)
        assert NAME not in names
        asked = len(proxy.requests)
        monkeypatch.setenv("NO_PROXY", "test")
        await pulled(address, store, trusting)
        monkeypatch.delenv("NO_PROXY")
        await pulled(address, store, replace(trusting, upstream_proxy="none"))
        await pulled(f"127.0.0.1:{server.port}", store, trusting)
        assert len(proxy.requests) == asked
        monkeypatch.delenv("HTTPS_PROXY")
        named = replace(trusting, upstream_proxy=f"http://{proxy.address}")
        await pulled(address, store, named)
        assert len(proxy.requests) > asked


@pytest.mark.parametrize("target", ["127.0.0.1", "localhost", "169.254.169.254", "10.0.0.1"])
async def test_nobody_is_led_to_this_machine_through_a_proxy(
    server: Scripted,
    store: ImageStore,
    trusting: RegistrySettings,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    server.on(BLOB, Answer(307, b"", {"Location": f"https://{target}:{server.port}/layer"}))
    server.on("/layer", ranged(CONTENT))
    async with Scripted() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        with pytest.raises(RegistryError, match="leads to where nobody goes"):
            await pulled(f"{NAME}:{server.port}", store, trusting)
        assert server.asked("/layer") == []
        server.on(BLOB, Answer(307, b"", {"Location": "/layer"}))
        assert (await pulled(f"{NAME}:{server.port}", store, trusting)).digest == IMAGE.digest


async def test_a_proxy_that_says_no(
    server: Scripted, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scripted(tls=None) as closed:
        port = closed.port
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryError, match="can't be reached") as caught:
        await pulled(f"{NAME}:{server.port}", store, QUICK)
    assert "HTTPS_PROXY" in str(caught.value.hint)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(RegistryError, match="not of the form http://HOST:PORT"):
        await pulled(f"{NAME}:{server.port}", store, QUICK)
