"""What people write for a host, and what becomes of it."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy import targets
from agentkernel.network.policy.model import Rule
from agentkernel.network.policy.targets import check_rule, parse_target


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "own_addresses", lambda: frozenset([IPv4Address("10.9.9.9")]))


def target(text: str, **words: Any) -> Rule:
    return parse_target(text, source="t", **words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Example.org", {"host": "example.org", "ports": (80, 443)}),
        ("example.org.:8443", {"host": "example.org", "ports": (8443,)}),
        ("example.org:*", {"host": "example.org"}),
        ("*.example.org", {"host": "*.example.org", "ports": (80, 443)}),
        ("*", {"host": "*", "ports": (80, 443)}),
        ("*:*", {"host": "*"}),
        ("bücher.example:443", {"host": "xn--bcher-kva.example", "ports": (443,)}),
        ("splice:example.org", {"host": "example.org", "ports": (80, 443), "tls": "splice"}),
        ("splice:443", {"host": "splice", "ports": (443,)}),
        ("8.8.8.8", {"host": "8.8.8.8", "ports": (80, 443)}),
        ("8.8.8.0/24:53", {"host": "8.8.8.0/24", "ports": (53,)}),
        ("[2606:4700::1111]:443", {"host": "2606:4700::1111", "ports": (443,)}),
        ("2606:4700::1111", {"host": "2606:4700::1111", "ports": (80, 443)}),
        ("[2606::/16]:443", {"host": "2606::/16", "ports": (443,)}),
        ("0.0.0.0/0:443", {"host": "0.0.0.0/0", "ports": (443,)}),
        ("10.1.2.3", {"host": "10.1.2.3", "ports": (80, 443), "private": True}),
        ("192.168.0.0/16:443", {"host": "192.168.0.0/16", "ports": (443,), "private": True}),
        ("127.0.0.1:8080", {"host": "127.0.0.1", "ports": (8080,), "private": True}),
        ("localhost:8080", {"host": "localhost", "ports": (8080,), "private": True}),
        (
            "host.agentkernel.internal:80",
            {"host": "host.agentkernel.internal", "ports": (80,), "private": True},
        ),
        ("[::1]:8080", {"host": "::1", "ports": (8080,), "private": True}),
        ("10.9.9.9:80", {"host": "10.9.9.9", "ports": (80,), "private": True}),
        ("169.254.169.254:80", {"host": "169.254.169.254", "ports": (80,), "private": True}),
        ("private:mirror.corp:443", {"host": "mirror.corp", "ports": (443,), "private": True}),
        ("private:splice:*.corp:443",
         {"host": "*.corp", "ports": (443,), "private": True, "tls": "splice"}),
    ],
)  # fmt: skip
def test_targets(text: str, expected: dict[str, Any]) -> None:
    assert target(text) == Rule(source="t", **expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a name"), ("example.org:", "no port"), ("example.org:0", "is not a port"),
        ("example.org:65536", "is not a port"), ("example.org:http", "is not a port"),
        ("example.org:" + "9" * 99, "is not a port"), ("https://example.org", "URL"),
        ("a@b", "URL"), ("a.*.b", "is not a name"), ("*example.org", "is not a name"),
        ("*.", "is not a name"), ("*.*", "is not a name"), ("a,b", "is not a name"),
        ("127.1", "not an address"), ("2130706433", "not an address"), ("0", "not an address"),
        ("0177.0.0.1", "not an address"), ("0x7f.1", "not an address"), ("0x7f", "is not a name"),
        ("fe80::1%eth0", "not an address"), ("10.1.2.3/8", "not an address"), ("[::1", "bracket"),
        ("[::1]x", "bracket"), ("[::1]:", "bracket"), ("10.0.0.0/33", "not an address"),
        ("localhost", "by a port only"), ("localhost:*", "by a port only"), ("::1", "by a port"),
        ("a.localhost", "by a port only"), ("127.0.0.1", "by a port only"),
        ("host.agentkernel.internal", "by a port only"),
        ("127.0.0.0/8:*", "by a port only"), ("10.9.9.9", "by a port only"),
        ("private:mirror.corp", "needs a port"), ("private:*.corp:*", "needs a port"),
        ("169.254.0.0/16", "only single addresses"), ("0.0.0.0", "nothing can be reached"),
        ("224.0.0.1", "nothing can be reached"), ("[::ffff:127.0.0.1]:80", "nothing can be"),
        ("[64:ff9b::7f00:1]:80", "nothing can be reached"), ("198.18.0.5:80", "stands for names"),
        ("evil\0.example", "is not a name"), ("a b", "is not a name"), ("-x", "is not a name"),
    ],
)  # fmt: skip
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        target(text)
    assert caught.value.hint
    assert caught.value.message.isprintable()


def test_a_denial_is_for_every_port_and_every_address() -> None:
    for text in ("example.org", "localhost", "127.0.0.0/8", "10.9.9.9", "169.254.0.0/16", "*"):
        rule = target(text, deny=True)
        assert (rule.action, rule.ports, rule.private) == ("deny", (), False)
    assert target("example.org:22", deny=True).ports == (22,)
    with pytest.raises(InvalidInputError):
        target("splice:example.org", deny=True)


def test_a_range_with_bits_too_many_is_told_the_right_one() -> None:
    with pytest.raises(InvalidInputError) as caught:
        target("10.1.2.3/8")
    assert caught.value.hint == "did you mean 10.0.0.0/8?"


@given(st.text(max_size=40) | st.text(alphabet="0123456789.:/[]*%xa", max_size=24))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    for deny in (False, True):
        try:
            rule = target(text, deny=deny)
        except InvalidInputError:
            continue
        assert check_rule(rule) == rule


def test_rules_of_callers() -> None:
    rule = Rule(host="EXAMPLE.org.", ports=(443, 80, 443), methods=("get",), paths=("/%76%31/*",))
    assert check_rule(rule, source="s") == Rule(
        host="example.org", ports=(80, 443), methods=("GET",), paths=("/v1/*",), source="s"
    )
    assert check_rule(Rule(host="10.0.0.0/8")).private


@pytest.mark.parametrize(
    "words",
    [
        {"host": "127.1"}, {"host": "localhost"}, {"host": "127.0.0.1"}, {"host": "10.9.9.9"},
        {"host": "a.example", "methods": ("GET ",)}, {"host": "a.example", "methods": ("",)},
        {"host": "a.example", "paths": ("v1",)}, {"host": "a.example", "paths": ("/a/../b",)},
        {"host": "a.example", "paths": ("/a*b",)}, {"host": "a.example", "paths": ("/a//*",)},
        {"host": "a.example", "paths": ("/" + "x" * 2000,)},
        {"host": "a.example", "methods": ("GET",), "tls": "splice"},
        {"host": "a.example", "paths": ("/x",), "tls": "splice"},
        {"host": "a.example", "private": True}, {"host": "a.example", "source": "\x1b[2J"},
        {"host": "a.example", "source": "x" * 301}, {"host": "a.example", "ports": (80,) * 65},
    ],
)  # fmt: skip
def test_rules_that_can_not_hold(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        check_rule(Rule(**words))
