"""Who gets a login, and where a registry may lead. Each refusal has a control beside it.

`registry.test` is a name for a server on 127.0.0.2. Some tests have that address judged as a public
one: then what listens on 127.0.0.1 is what a hostile registry would like to reach.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import ImageInvalidError, RegistryDeniedError, RegistryError
from agentkernel.images.oci.model import Platform
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry import dialling
from agentkernel.images.oci.registry.client import RegistryClient
from agentkernel.images.oci.registry.dialling import Nearness
from agentkernel.images.oci.registry.hosts import Endpoint, Origin, Place
from agentkernel.images.oci.registry.pulling import Pulled, pull
from agentkernel.images.oci.registry.settings import RegistrySettings
from agentkernel.images.oci.store import ImageStore
from agentkernel.network.policy.addresses import vet
from agentkernel.network.policy.names import Address
from tests.images.conftest import QUICK
from tests.images.registry_tool import make_image, make_layer
from tests.images.scripted import Answer, Request, Scripted, problem, ranged

IMAGE = make_image([make_layer({"data": b"x" * 1000})])
LAYER = IMAGE.layers[0]
CONTENT = IMAGE.blobs[LAYER]
BLOB = f"/v2/app/blobs/{LAYER}"
MANIFEST = "/v2/app/manifests/1"
USER, PASSWORD = "alice", "hunter2-very-secret"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
NAME = "registry.test"

Names = dict[str, list[str]]


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with Scripted("127.0.0.2") as running:
        running.serve(IMAGE, "app", "1")
        yield running


@pytest.fixture
async def victim() -> AsyncIterator[Scripted]:
    """A service of this machine that answers with what is asked for."""
    async with Scripted("127.0.0.1") as running:
        running.on("/layer", ranged(CONTENT))
        running.on("/token", Answer(200, b'{"token": "from-the-victim"}'))
        yield running


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """What names mean; nobody else is asked."""
    known: Names = {NAME: ["127.0.0.2"]}
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **more: Any) -> list[Any]:
        asked.append(host)
        found = known.get(host) or ([host] if host[0].isdigit() or ":" in host else [])
        if not found:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    known["asked"] = asked
    return known


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 counts as a public address."""

    def judged(address: Address, rule_private: bool, port_named: bool) -> str | None:
        return None if str(address) == "127.0.0.2" else vet(address, rule_private, port_named)

    monkeypatch.setattr(dialling, "vet", judged)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("1.1.1.1", Nearness.PUBLIC), ("64:ff9b::101:101", Nearness.PUBLIC),
     ("10.0.0.1", Nearness.PRIVATE), ("64:ff9b::a00:1", Nearness.PRIVATE),
     ("127.0.0.1", Nearness.LOCAL), ("64:ff9b::7f00:1", Nearness.LOCAL),
     ("169.254.169.254", Nearness.FORBIDDEN), ("::ffff:1.1.1.1", Nearness.FORBIDDEN)],
)  # fmt: skip
def test_how_near_an_address_is(address: str, expected: Nearness) -> None:
    assert dialling.nearness(ip_address(address)) is expected


def log_in(home: Path, **logins: str) -> None:
    pair = BASIC.removeprefix("Basic ")
    (home / ".docker").mkdir(exist_ok=True)
    body = {"auths": {name: {"auth": pair} for name in logins.values()}}
    (home / ".docker" / "config.json").write_text(json.dumps(body))


def by_name(server: Scripted) -> tuple[str, RegistrySettings]:
    """The server under a name that is not the loopback's, in plain HTTP."""
    address = f"{NAME}:{server.port}"
    return address, replace(QUICK, insecure=frozenset({address}))


async def pulled(address: str, store: ImageStore, settings: RegistrySettings = QUICK) -> Pulled:
    return await pull(
        store,
        parse_reference(f"{address}/app:1"),
        settings=settings,
        platform=Platform(architecture="amd64", os="linux"),
    )


def guarded(server: Scripted, challenge: str, wanted: Callable[[str | None], bool]) -> None:
    """The manifest is for those who say the right thing."""
    good = Answer(200, IMAGE.manifest, {"Content-Type": IMAGE.media_type})
    closed = Answer(401, b"", {"WWW-Authenticate": challenge})
    server.on(MANIFEST, lambda request: good if wanted(request.authorization) else closed)


def redirect(to: str) -> Answer:
    return Answer(307, b"", {"Location": to})


# -- logins --------------------------------------------------------------------------------------


async def test_nobody_gets_a_login_unasked(server: Scripted, store: ImageStore, home: Path) -> None:
    log_in(home, a=server.address)
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert {request.authorization for request in server.requests} == {None}


async def test_a_redirect_gets_no_login(
    server: Scripted, victim: Scripted, store: ImageStore, home: Path
) -> None:
    log_in(home, a=server.address, b=victim.address)
    guarded(server, 'Basic realm="x"', lambda sent: sent == BASIC)
    server.on(BLOB, redirect(f"http://{victim.address}/layer?signature=1"))
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.authorization for request in victim.asked("/layer")] == [None]
    # The control: the registry itself, which redirects to itself.
    assert {request.authorization for request in server.asked(BLOB)} == {BASIC}
    store.blob_path(LAYER).unlink()
    server.on(BLOB, redirect("/elsewhere"))
    server.on("/elsewhere", ranged(CONTENT))
    await pulled(server.address, store)
    assert [request.authorization for request in server.asked("/elsewhere")] == [BASIC]


async def test_what_others_ask_for_gets_no_login(
    server: Scripted, victim: Scripted, store: ImageStore, home: Path
) -> None:
    """The one whom the registry leads to says 401, and names a realm of its own."""
    log_in(home, a=server.address)
    seen = token_server(victim)
    for challenge in (f'Bearer realm="http://{victim.address}/token"', 'Basic realm="x"'):
        victim.on("/layer", Answer(401, b"", {"WWW-Authenticate": challenge}))
        server.on(BLOB, redirect(f"http://{victim.address}/layer"))
        with pytest.raises(RegistryDeniedError):
            await pulled(server.address, store)
    assert seen == []
    assert {request.authorization for request in victim.requests} == {None}
    # The control: the registry itself says it.
    guarded(server, f'Bearer realm="http://{victim.address}/token"', lambda s: s == "Bearer tok")
    victim.on("/layer", ranged(CONTENT))
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.authorization for request in seen] == [BASIC]


async def test_who_leads_back_leads_without_a_login(
    server: Scripted, victim: Scripted, store: ImageStore, home: Path
) -> None:
    log_in(home, a=server.address)
    guarded(server, 'Basic realm="x"', lambda sent: sent == BASIC)
    server.on(BLOB, redirect(f"http://{victim.address}/back"))
    victim.on("/back", redirect(f"http://{server.address}/elsewhere"))
    server.on("/elsewhere", ranged(CONTENT))
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.authorization for request in server.asked("/elsewhere")] == [None]


async def test_another_port_is_another_registry(
    server: Scripted, store: ImageStore, home: Path
) -> None:
    log_in(home, a="127.0.0.2:1", b="127.0.0.2", c=f"127.0.0.2:{server.port - 1}")
    guarded(server, 'Basic realm="x"', lambda sent: sent == BASIC)
    with pytest.raises(RegistryDeniedError):
        await pulled(server.address, store)
    assert {request.authorization for request in server.requests} == {None}
    log_in(home, a=server.address)
    assert (await pulled(server.address, store)).digest == IMAGE.digest


def token_server(server: Scripted, token: str = "tok") -> list[Request]:
    seen: list[Request] = []

    def give(request: Request) -> Answer:
        seen.append(request)
        return Answer(200, json.dumps({"token": token, "expires_in": 300}).encode())

    server.on("/token", give)
    return seen


async def test_a_token(server: Scripted, victim: Scripted, store: ImageStore, home: Path) -> None:
    """The login goes to the realm that the registry names, for one right whatever it names."""
    log_in(home, a=server.address)
    seen = token_server(victim)
    realm = f"http://{victim.address}/token?a=b"
    guarded(
        server,
        f'Negotiate, Bearer realm="{realm}", service="reg istry",scope="repository:*:push,pull"',
        lambda sent: sent == "Bearer tok",
    )
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.path for request in seen] == [
        "/token?a=b&scope=repository%3Aapp%3Apull&service=reg+istry"
    ]
    assert [request.authorization for request in seen] == [BASIC]
    # One token for all that follows; no login beside it.
    sent = [request.authorization for request in server.requests]
    assert sent[0] is None
    assert set(sent[1:]) == {"Bearer tok"}


@pytest.mark.parametrize(
    "body",
    [b'{"token": null, "access_token": "tok"}', b'{"token": "tok", "expires_in": "300"}',
     b'{"token": "tok", "expires_in": -1e9}', b'{"token": "tok", "issued_at": 5}'],
)  # fmt: skip
async def test_tokens_in_odd_forms(server: Scripted, store: ImageStore, body: bytes) -> None:
    server.on("/token", Answer(200, body))
    guarded(server, f'Bearer realm="http://{server.address}/token"', lambda s: s == "Bearer tok")
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert len(server.asked("/token")) == 1


async def test_a_token_for_nobody(server: Scripted, store: ImageStore) -> None:
    seen = token_server(server)
    realm = f"http://{server.address}/token"
    guarded(server, f'Bearer realm="{realm}"', lambda sent: sent == "Bearer tok")
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.authorization for request in seen] == [None]


async def test_a_token_for_a_token(server: Scripted, store: ImageStore, home: Path) -> None:
    (home / ".docker").mkdir()
    body = {"auths": {server.address: {"auth": "YWxpY2U6", "identitytoken": PASSWORD}}}
    (home / ".docker" / "config.json").write_text(json.dumps(body))
    seen = token_server(server)
    realm = f"http://{server.address}/token"
    guarded(server, f'Bearer realm="{realm}",service="s"', lambda sent: sent == "Bearer tok")
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.method for request in seen] == ["POST"]
    assert seen[0].body == (
        b"scope=repository%3Aapp%3Apull&service=s&grant_type=refresh_token"
        b"&refresh_token=hunter2-very-secret&client_id=agentkernel"
    )
    assert PASSWORD not in seen[0].path


async def test_a_token_that_has_expired_is_replaced(server: Scripted, store: ImageStore) -> None:
    valid = {"token": ""}
    counter = iter(range(100))

    def give(request: Request) -> Answer:
        valid["token"] = f"t{next(counter)}"
        return Answer(200, json.dumps({"access_token": valid["token"]}).encode())

    def layer(request: Request) -> Answer:
        if len(server.asked(BLOB)) == 1:
            valid["token"] = ""  # meanwhile it is no longer valid
        if request.authorization != f"Bearer {valid['token']}":
            realm = f'Bearer realm="http://{server.address}/token"'
            return Answer(401, b"", {"WWW-Authenticate": realm})
        return Answer(200, CONTENT)

    server.on("/token", give)
    realm = f"http://{server.address}/token"
    guarded(server, f'Bearer realm="{realm}"', lambda sent: sent == f"Bearer {valid['token']}")
    server.on(BLOB, layer)
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert len(server.asked("/token")) == 2


@pytest.mark.parametrize(
    ("realm", "message"),
    [
        ("http://auth.test/token", "plain HTTP"),
        ("ftp://auth.test/token", "realm that is none"),
        ("https://user:word@auth.test/token", "realm that is none"),
        ("//auth.test/token", "realm that is none"),
        ("", "realm that is none"),
        ("https://auth.test:0/token", "realm that is none"),
        ("https://2130706433/token", "realm that is none"),
        ("https://auth.test\\\\@127.0.0.1/token", "realm that is none"),
        ("https://auth.test/to ken", "realm that is none"),
        ("https://169.254.169.254/token", "metadata"),
        ("https://metadata.test/token", "metadata"),
    ],
)
async def test_realms_where_nobody_goes(
    server: Scripted, store: ImageStore, home: Path, names: Names, realm: str, message: str
) -> None:
    names["auth.test"] = ["127.0.0.1"]
    names["metadata.test"] = ["169.254.169.254"]
    log_in(home, a=server.address)
    guarded(server, f'Bearer realm="{realm}"', lambda sent: False)
    with pytest.raises(RegistryError, match=message):
        await pulled(server.address, store)
    assert {request.authorization for request in server.requests} == {None}
    # The control: the same registry with a realm of its own.
    seen = token_server(server)
    guarded(server, f'Bearer realm="http://{server.address}/token"', lambda s: s == "Bearer tok")
    assert (await pulled(server.address, store)).digest == IMAGE.digest
    assert [request.authorization for request in seen] == [BASIC]


async def test_over_plain_http_a_realm_elsewhere_gets_no_login(
    server: Scripted, victim: Scripted, store: ImageStore, home: Path, names: Names
) -> None:
    """Whoever sits between could have named it."""
    address, settings = by_name(server)
    log_in(home, a=address)
    seen = token_server(victim)
    guarded(server, f'Bearer realm="http://{victim.address}/token"', lambda s: s == "Bearer tok")
    assert (await pulled(address, store, settings)).digest == IMAGE.digest
    assert [request.authorization for request in seen] == [None]
    seen = token_server(server, "own")
    guarded(server, f'Bearer realm="http://{address}/token"', lambda sent: sent == "Bearer own")
    assert (await pulled(address, store, settings)).digest == IMAGE.digest
    assert [request.authorization for request in seen] == [BASIC]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"token": ""}', b'{"token": "a\\r\\nX: y"}', b'{"token": 5}',
     b"<html>", b'{"token": "' + b"a" * 40_000 + b'"}', b" " * 70_000],
    ids=lambda body: f"{len(body)}-{body[:12]!r}",
)  # fmt: skip
async def test_tokens_that_are_none(server: Scripted, store: ImageStore, body: bytes) -> None:
    server.on("/token", Answer(200, body))
    guarded(server, f'Bearer realm="http://{server.address}/token"', lambda s: s == "Bearer tok")
    with pytest.raises(RegistryError, match="a token"):
        await pulled(server.address, store)
    token_server(server)
    assert (await pulled(server.address, store)).digest == IMAGE.digest


async def test_a_registry_that_says_the_secret_back(
    server: Scripted, store: ImageStore, home: Path
) -> None:
    log_in(home, a=server.address)
    guarded(server, 'Basic realm="x"', lambda sent: sent == BASIC)
    words = f"you said {PASSWORD} and {BASIC}, I say no"
    server.on(BLOB, Answer(403, problem(words)))
    with pytest.raises(RegistryDeniedError, match="you said .* I say no") as caught:
        await pulled(server.address, store)
    shown = json.dumps(caught.value.to_dict()) + repr(caught.value)
    assert PASSWORD not in shown
    assert BASIC.removeprefix("Basic ") not in shown


# -- where redirects lead ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    [
        "",
        "ftp://127.0.0.1/layer",
        "file:///etc/passwd",
        "http://user:word@127.0.0.1/layer",
        "http:///layer",
        "http://127.1/layer",
        "http://0x7f000001/layer",
        "http://[::ffff:127.0.0.1%25lo]/layer",
        "http://127.0.0.1:99999/layer",
        "http://" + "a" * 20_000,
        "\\\\127.0.0.1\\layer",
    ],
)
async def test_redirects_to_nowhere(server: Scripted, store: ImageStore, location: str) -> None:
    server.on(BLOB, redirect(location))
    with pytest.raises(
        RegistryError, match=r"redirects to nowhere|leads to where|can't be reached|names it"
    ):
        await pulled(server.address, store)
    server.on(BLOB, ranged(CONTENT))
    assert (await pulled(server.address, store)).digest == IMAGE.digest


@pytest.mark.parametrize("count", [5, 6])
async def test_redirects_end(server: Scripted, store: ImageStore, count: int) -> None:
    server.on(BLOB, redirect("/hop/1"))
    for number in range(1, count):
        server.on(f"/hop/{number}", redirect(f"/hop/{number + 1}"))
    server.on(f"/hop/{count}", ranged(CONTENT))
    if count > 5:
        with pytest.raises(RegistryError, match="redirects more than 5 times"):
            await pulled(server.address, store)
        assert server.asked("/hop/6") == []
    else:
        assert (await pulled(server.address, store)).digest == IMAGE.digest


async def test_a_redirect_in_a_circle(server: Scripted, store: ImageStore) -> None:
    server.on(MANIFEST, redirect(MANIFEST))
    with pytest.raises(RegistryError, match="redirects more than 5 times"):
        await pulled(server.address, store)
    assert len(server.asked(MANIFEST)) == 6


async def test_from_a_public_registry_nobody_gets_to_this_machine(
    server: Scripted,
    victim: Scripted,
    store: ImageStore,
    names: Names,
    public: None,
) -> None:
    address, settings = by_name(server)
    names["layers.test"] = ["127.0.0.1"]
    for host in ("127.0.0.1", "layers.test"):
        server.on(BLOB, redirect(f"http://{host}:{victim.port}/layer"))
        with pytest.raises(
            RegistryError, match="leads to where nobody goes.*the machine's loopback"
        ):
            await pulled(address, store, settings)
    guarded(server, f'Bearer realm="http://{victim.address}/token"', lambda sent: False)
    with pytest.raises(RegistryError, match="leads to where nobody goes"):
        await pulled(address, store, settings)
    assert victim.requests == []


async def test_from_one_on_this_machine_everybody_gets_there(
    server: Scripted, victim: Scripted, store: ImageStore, names: Names
) -> None:
    """The control of the test above."""
    address, settings = by_name(server)
    server.on(BLOB, redirect(f"http://{victim.address}/layer"))
    assert (await pulled(address, store, settings)).digest == IMAGE.digest
    assert len(victim.asked("/layer")) == 1


@pytest.mark.parametrize(
    "target",
    ["10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0",
     "[::1]", "[fd00:ec2::254]", "[::ffff:127.0.0.1]", "[fe80::1]", "[64:ff9b::7f00:1]"],
)  # fmt: skip
async def test_from_a_public_registry_nobody_gets_to_private_addresses(
    server: Scripted, store: ImageStore, names: Names, public: None, target: str
) -> None:
    address, settings = by_name(server)
    server.on(BLOB, redirect(f"http://{target}/layer"))
    with pytest.raises(RegistryError, match="leads to where nobody goes"):
        await pulled(address, store, settings)
    # The same through a name, of which one address is a public one.
    names["layers.test"] = ["127.0.0.2", target.strip("[]")]
    server.on(BLOB, redirect("http://layers.test/layer"))
    with pytest.raises(RegistryError, match="leads to where nobody goes"):
        await pulled(address, store, settings)


@pytest.mark.parametrize("target", ["169.254.169.254", "[fd00:ec2::254]", "0.0.0.0"])
async def test_even_from_this_machine_nobody_gets_to_metadata(
    server: Scripted, store: ImageStore, target: str
) -> None:
    server.on(BLOB, redirect(f"http://{target}/latest/meta-data"))
    with pytest.raises(RegistryError, match="leads to where nobody goes"):
        await pulled(server.address, store)


async def test_a_name_is_resolved_once(
    server: Scripted, victim: Scripted, store: ImageStore, names: Names, public: None
) -> None:
    """A name that means something else at its second look-up has no second look-up."""
    address, settings = by_name(server)
    names["layers.test"] = ["127.0.0.2"]
    server.on(BLOB, redirect(f"http://layers.test:{server.port}/layer"))
    server.on("/layer", ranged(CONTENT))
    assert (await pulled(address, store, settings)).digest == IMAGE.digest
    assert names["asked"] == [NAME, "layers.test"]


async def test_tls_is_not_left(
    names: Names,
) -> None:
    """By itself: no test reaches a public address."""
    https = Origin("https", "registry.example", 443)
    client = RegistryClient(Endpoint("registry.example", https, "app", ()), QUICK)
    client._nearness = Nearness.PUBLIC
    with pytest.raises(RegistryError, match="without TLS"):
        await client._next(Place(https, "/"), "http://192.0.2.1/layer")
    with pytest.raises(RegistryError, match="leads to where"):
        await client._next(Place(https, "/"), "https://10.0.0.1/layer")
    assert await client._next(Place(https, "/"), "https://1.1.1.1/layer") == Place(
        Origin("https", "1.1.1.1", 443), "/layer"
    )


async def test_bytes_from_elsewhere_are_verified_all_the_same(
    server: Scripted, victim: Scripted, store: ImageStore
) -> None:
    victim.on("/other", Answer(200, b"y" * len(CONTENT)))
    server.on(BLOB, redirect(f"http://{victim.address}/other"))
    with pytest.raises(ImageInvalidError, match="has the digest"):
        await pulled(server.address, store)
