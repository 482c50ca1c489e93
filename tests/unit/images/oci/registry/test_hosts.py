"""Where a reference can be fetched, and which addresses are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.hosts import (
    Endpoint,
    Origin,
    Place,
    endpoints,
    follow,
    is_loopback,
    parse_place,
)
from agentkernel.images.oci.registry.settings import RegistrySettings, registry_settings


def places(text: str, settings: RegistrySettings | None = None) -> list[Endpoint]:
    return endpoints(parse_reference(text), settings or RegistrySettings())


def test_docker_hub_has_another_host_and_an_old_name_for_its_login() -> None:
    for text in ("debian", "docker.io/library/debian", "index.docker.io/library/debian:12"):
        (found,) = places(text)
        assert str(found.origin) == "https://registry-1.docker.io"
        assert (found.registry, found.repository) == ("docker.io", "library/debian")
        assert found.logins[0] == "https://index.docker.io/v1/"


@pytest.mark.parametrize(
    ("text", "origin", "maybe_plain"),
    [
        ("ghcr.io/a/b", Origin("https", "ghcr.io", 443), False),
        ("Quay.IO/a/b", Origin("https", "quay.io", 443), False),
        ("registry.lan:5000/a", Origin("https", "registry.lan", 5000), False),
        ("10.0.0.7:5000/a", Origin("https", "10.0.0.7", 5000), False),
        ("localhost:5000/a", Origin("https", "localhost", 5000), True),
        ("127.0.0.9:5000/a", Origin("https", "127.0.0.9", 5000), True),
        ("[::1]:5000/a", Origin("https", "::1", 5000), True),
        ("127.0.0.1/a", Origin("http", "127.0.0.1", 80), False),
        ("plain.lan:5000/a", Origin("http", "plain.lan", 5000), False),
        ("plain80.lan/a", Origin("http", "plain80.lan", 80), False),
        ("plain80.lan:80/a", Origin("http", "plain80.lan", 80), False),
        ("plain80.lan:5000/a", Origin("https", "plain80.lan", 5000), False),
    ],
)
def test_plain_http_is_for_the_loopback_and_for_who_is_named(
    text: str, origin: Origin, maybe_plain: bool
) -> None:
    settings = RegistrySettings(insecure=frozenset({"plain.lan:5000", "plain80.lan"}))
    (found,) = places(text, settings)
    assert (found.origin, found.maybe_plain) == (origin, maybe_plain)


def test_mirrors_come_first() -> None:
    settings = registry_settings(
        {
            "images.mirrors": {"docker.io": ("https://m.example", "https://h.example:8443/hub")},
            "network.upstream_proxy": "none",
        }
    )
    found = places("debian", settings)
    assert [(str(each.origin), each.repository) for each in found] == [
        ("https://m.example", "library/debian"),
        ("https://h.example:8443", "hub/library/debian"),
        ("https://registry-1.docker.io", "library/debian"),
    ]
    assert [each.logins[0] for each in found[:2]] == ["m.example", "h.example:8443"]
    assert len(places("ghcr.io/a/b", settings)) == 1


def test_a_mirror_in_plain_http_is_on_the_loopback_or_named() -> None:
    mirrors = {"docker.io": ("http://m.lan:5000",)}
    with pytest.raises(InvalidInputError, match="plain HTTP beyond this machine") as caught:
        places("debian", RegistrySettings(mirrors=mirrors))
    assert '"m.lan:5000" to images.insecure' in str(caught.value.hint)
    named = RegistrySettings(mirrors=mirrors, insecure=frozenset({"m.lan:5000"}))
    assert str(places("debian", named)[0].origin) == "http://m.lan:5000"
    wrong = RegistrySettings(mirrors={"docker.io": ("https://a..b",)})
    with pytest.raises(InvalidInputError, match=r"the mirror https://a\.\.b"):
        places("debian", wrong)
    near = RegistrySettings(mirrors={"docker.io": ("http://[::1]:5000",)})
    assert str(places("debian", near)[0].origin) == "http://[::1]:5000"


@pytest.mark.parametrize(
    "text", ["r.example:0/a", "r.example:99999/a", "1.2.3.4.5:80/a", "127.1:5/a"]
)
def test_registries_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is no registry"):
        places(text)


def test_local_names_are_in_no_registry() -> None:
    with pytest.raises(NotFoundError, match="built or loaded here"):
        places("localhost/app")


def test_redirects_as_registries_write_them() -> None:
    base = Place(Origin("https", "r.example", 443), "/v2/app/blobs/x")
    cdn = Origin("https", "cdn.example", 443)
    assert follow(base, "https://cdn.example/a?sig=%2B&b=c") == Place(cdn, "/a?sig=%2B&b=c")
    assert follow(base, "//cdn.example/a") == Place(cdn, "/a")
    assert follow(base, "/elsewhere") == Place(base.origin, "/elsewhere")
    assert follow(base, "https://CDN.example.:443/a#part") == Place(cdn, "/a")


@given(st.text(max_size=60) | st.text("htps:/@[]%.0127ab\\ ?#", max_size=40))
def test_an_address_is_one_or_is_refused(text: str) -> None:
    base = Place(Origin("https", "r.example", 443), "/")
    for read in (parse_place, lambda given: follow(base, given)):
        try:
            found = read(text)
        except ValueError:
            continue
        assert found.origin.scheme in ("http", "https")
        assert found.target.startswith("/")
        assert not set(found.origin.host) & set("/@\\ #?%[]")


@pytest.mark.parametrize(
    ("host", "near"),
    [("localhost", True), ("a.localhost", True), ("127.8.9.1", True), ("::1", True),
     ("localhost.example.org", False), ("notlocalhost", False), ("128.0.0.1", False)],
)  # fmt: skip
def test_which_names_are_the_loopbacks(host: str, near: bool) -> None:
    assert is_loopback(host) is near
