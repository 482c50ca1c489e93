"""Names and addresses: one spelling each, and nothing that can be read as the other."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.names import (
    canonical_host,
    canonical_name,
    is_name,
    parse_address,
    written_name,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("example.org", "example.org"),
        ("Example.ORG.", "example.org"),
        ("localhost", "localhost"),
        ("_dmarc.example.org", "_dmarc.example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("1.example", "1.example"),
        ("a" * 63 + ".example", "a" * 63 + ".example"),
        ("r3---sn-4g5e.example", "r3---sn-4g5e.example"),
        (".".join(["a" * 49] * 5) + ".a2", ".".join(["a" * 49] * 5) + ".a2"),
    ],
)
def test_a_name_has_one_form(text: str, name: str) -> None:
    assert canonical_name(text) == name
    assert canonical_name(name) == name
    assert is_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..b", ".example.org", "example.org..", "evil\0.example.org", "a b.example",
        "%65xample.org", "example.org%00", "exam\nple.org", "-a.example", "a-.example", "*.example",
        "a" * 64 + ".example", ".".join(["a" * 50] * 5) + ".aaa", "bücher.example", "example。org",
        "user@example.org", "example.org:443", "example.org/x", "[::1]", "::1", "fe80::1%eth0",
        "2130706433", "0", "00", "127.1", "127.0.0.1", "127.0.0.1.", "0177.1", "0x7f.1",
        "0x7f000001", "0x", "0177.0.0.01", "1.2.3.4.5", "example.0x1", "example.1",
        "256.1.1.1", "0X7F.1",
    ],
)  # fmt: skip
def test_what_is_not_a_name(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(InvalidInputError, match="is not a name"):
        canonical_name(text)


def test_a_message_shows_nothing_that_acts_on_a_screen() -> None:
    with pytest.raises(InvalidInputError) as caught:
        canonical_name("\x1b]0;x\x07" + "\u202e" * 5000)
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 700


@given(st.text(alphabet="0123456789abcdefxX.", min_size=1, max_size=20))
def test_no_name_is_an_address_to_the_c_library(text: str) -> None:
    try:
        socket.inet_aton(text)
    except OSError:
        return
    assert not is_name(canonical_name(text) if is_name(text) else text)


@given(st.text(max_size=80))
def test_any_text_is_a_canonical_name_or_refused(text: str) -> None:
    try:
        name = canonical_name(text)
    except InvalidInputError:
        return
    assert canonical_name(name) == name
    assert name.isascii() and name == name.lower() and not name.endswith(".")


def test_people_may_write_other_letters() -> None:
    assert written_name("Bücher.example") == "xn--bcher-kva.example"
    assert written_name("example。org") == "example.org"
    for text in (
        "straße.example",
        "a\u200db.example",
        "1２7.0.0.１",
        "ａ..example",
        "\ud800.example",
    ):
        with pytest.raises(InvalidInputError):
            written_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "127.1", "0", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "127.0.0.1 ", "fe80::1%eth0",
     "[::1]", "::1%", "1.2.3.4/32", "１27.0.0.1", "127.0.0.1\0", "1.2.3.04"],
)  # fmt: skip
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not an address"):
        parse_address(text)


def test_a_host_is_a_name_or_an_address() -> None:
    assert canonical_host("API.Example.org.") == "api.example.org"
    assert canonical_host("192.0.2.7") == "192.0.2.7"
    assert canonical_host("[2001:DB8:0::7]") == "2001:db8::7"
    assert canonical_host("2001:db8::7") == "2001:db8::7"
    for text in ("127.1", "[127.0.0.1]", "[example.org]", "[::1", "a:b", "fe80::1%1", ""):
        with pytest.raises(InvalidInputError):
            canonical_host(text)
