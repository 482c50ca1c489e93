"""First match decides, none means no, and a floor only ever takes away."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.network.policy.judging import (
    Verdict,
    judge_address,
    judge_connection,
    judge_request,
    rule_text,
)
from agentkernel.network.policy.model import Policy, Rule
from agentkernel.network.policy.names import parse_address


def policy(*rules: Rule) -> Policy:
    return Policy(rules=rules)


def allow(host: str, *ports: int, **words: Any) -> Rule:
    return Rule(host=host, ports=ports, **words)


def deny(host: str, *ports: int, **words: Any) -> Rule:
    return Rule(action="deny", host=host, ports=ports, **words)


def outcome(given_policy: Policy, host: str, port: int = 443) -> str:
    return judge_connection(given_policy, None, host, port).outcome


def test_an_empty_list_means_none() -> None:
    for host in ("example.org", "8.8.8.8", "localhost", "::1"):
        assert outcome(Policy(), host) == "deny"
        request = judge_request(Policy(), None, host, 443, "GET", "/")
        assert (request.outcome, request.rule) == ("deny", None)
    assert outcome(policy(allow("*")), "example.org") == "allow"


@pytest.mark.parametrize(
    ("rule", "matching", "others"),
    [
        ("allowed.com", ["allowed.com"],
         ["allowed.com.evil.com", "notallowed.com", "a.allowed.com", "com", "allowed.co"]),
        ("*.allowed.com", ["a.allowed.com", "a.b.allowed.com"],
         ["allowed.com", "notallowed.com", "a.allowed.com.evil.com", "aallowed.com", "1.2.3.4"]),
        ("*", ["a", "a.b"], ["8.8.8.8", "::1", "2606:4700::1"]),
        ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "::a00:1", "a.example"]),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "a.example"]),
        ("0.0.0.0/0", ["8.8.8.8", "127.0.0.1"], ["::ffff:8.8.8.8", "::1", "a.example", "web1"]),
        ("2606::/16", ["2606::1"], ["2607::1", "38.6.0.0", "a.example"]),
        ("web1", ["web1"], ["web2", "a.web1"]),
    ],
)  # fmt: skip
def test_what_a_host_matches(rule: str, matching: list[str], others: list[str]) -> None:
    for host in matching:
        assert outcome(policy(allow(rule)), host) == "allow"
        assert outcome(policy(deny(rule), allow("*"), allow("0.0.0.0/0"), allow("::/0")), host) == (
            "deny"
        )
    for host in others:
        assert outcome(policy(allow(rule)), host) == "deny"


def test_ports() -> None:
    some = policy(allow("a.example", 443, 8443))
    assert [outcome(some, "a.example", port) for port in (443, 8443, 80)] == [
        "allow", "allow", "deny",
    ]  # fmt: skip
    assert outcome(policy(allow("a.example")), "a.example", 22) == "allow"


def test_the_first_match_decides() -> None:
    rules = policy(allow("a.b.example"), deny("*.b.example"), allow("*.example"), deny("*"))
    found = {
        host: judge_connection(rules, None, host, 443)
        for host in ("a.b.example", "c.b.example", "c.example", "example")
    }
    assert [(v.outcome, v.rule) for v in found.values()] == [
        ("allow", 1), ("deny", 2), ("allow", 3), ("deny", 4),
    ]  # fmt: skip


def test_the_words_name_the_rule_and_where_it_comes_from() -> None:
    rules = policy(deny("a.example", source="--deny"), allow("b.example", 443, methods=("GET",)))
    assert judge_connection(rules, None, "a.example", 443).words == (
        "rule 1 of the sandbox's policy (deny a.example; from --deny) denies a.example:443"
    )
    verdict = judge_request(rules, None, "b.example", 443, "POST", "/x")
    assert verdict.words == "no rule of the sandbox's policy allows POST b.example:443/x"
    inspect = judge_connection(rules, None, "b.example", 443)
    assert "(allow b.example:443 GET)" in inspect.words and inspect.rule == 2
    floor = judge_connection(policy(allow("*")), policy(), "a.example", 443)
    assert floor.by_floor and "operator's floor" in floor.words
    odd = judge_request(rules, None, "c.example", 1, "GET", "/\x1b[2J" + "x" * 9999)
    assert odd.words.isprintable() and len(odd.words) < 300


def test_a_method_or_a_path_asks_for_the_request_to_be_seen() -> None:
    reads = policy(allow("a.example", methods=("GET", "HEAD")), allow("b.example"))
    assert outcome(reads, "a.example") == "inspect"
    assert outcome(reads, "b.example") == "allow"
    ask = {m: judge_request(reads, None, "a.example", 443, m, "/").outcome
           for m in ("GET", "HEAD", "POST", "PUT", "get")}  # fmt: skip
    assert ask == {"GET": "allow", "HEAD": "allow", "POST": "deny", "PUT": "deny", "get": "allow"}


def test_what_was_decided_before_is_not_asked_again() -> None:
    assert outcome(policy(allow("a.example"), deny("a.example", paths=("/x",))), "a.example") == (
        "allow"
    )
    assert outcome(
        policy(deny("a.example"), allow("a.example", methods=("GET",))), "a.example"
    ) == ("deny")
    # Nothing but a no can come of it: no need to look.
    assert outcome(policy(deny("a.example", paths=("/x",))), "a.example") == "deny"
    assert outcome(policy(allow("a.example", paths=("/*",))), "a.example") == "allow"


def test_denied_paths() -> None:
    rules = policy(deny("a.example", paths=("/admin/*", "/admin")), allow("a.example"))
    assert outcome(rules, "a.example") == "inspect"
    asked = {
        path: judge_request(rules, None, "a.example", 443, "GET", path).outcome
        for path in ("/", "/admin", "/admin/x", "/x/../admin", "/%61dmin", "//admin", "/a%2fb")
    }
    assert asked == {
        "/": "allow", "/admin": "deny", "/admin/x": "deny", "/x/../admin": "deny",
        "/%61dmin": "deny", "//admin": "deny", "/a%2fb": "deny",
    }  # fmt: skip


def test_an_unclear_path_matters_only_to_rules_that_ask_for_one() -> None:
    """npm asks for /@scope%2fname; rules by method don't mind."""
    reads = policy(allow("a.example", methods=("GET",)))
    assert judge_request(reads, None, "a.example", 443, "GET", "/@a%2fb").outcome == "allow"
    below = policy(allow("a.example", paths=("/v1/*",)))
    for path in ("/v1/../admin", "/v1/%2e%2e/admin", "/v1/..%2fadmin"):
        verdict = judge_request(below, None, "a.example", 443, "GET", path)
        assert verdict.outcome == "deny" and "several ways" in verdict.words
    assert judge_request(below, None, "a.example", 443, "GET", "/v1/admin").outcome == "allow"


def test_both_have_to_allow() -> None:
    own, floor = policy(allow("a.example"), allow("b.example")), policy(allow("a.example", 443))
    assert judge_connection(own, floor, "a.example", 443).outcome == "allow"
    for host, port in (("a.example", 80), ("b.example", 443), ("c.example", 443)):
        assert judge_connection(own, floor, host, port).outcome == "deny"
    assert judge_connection(own, floor, "c.example", 443).by_floor is False
    assert judge_connection(own, Policy(), "a.example", 443).outcome == "deny"


def test_a_floor_that_asks_is_never_spliced_past() -> None:
    own = policy(allow("a.example", tls="splice"))
    assert judge_connection(own, None, "a.example", 443).splice
    floor = policy(allow("a.example", methods=("GET",)))
    verdict = judge_connection(own, floor, "a.example", 443)
    assert (verdict.outcome, verdict.splice, verdict.by_floor) == ("inspect", False, True)
    assert judge_request(own, floor, "a.example", 443, "POST", "/").outcome == "deny"


def test_private_holds_only_if_every_rule_that_could_decide_says_so() -> None:
    private = allow("a.example", 443, private=True)
    reads = allow("a.example", 443, methods=("GET",), private=True)

    def flags(rules: Policy, floor: Policy | None = None) -> tuple[bool, bool]:
        verdict = judge_connection(rules, floor, "a.example", 443)
        return verdict.private, verdict.port_named

    assert flags(policy(private)) == (True, True)
    assert flags(policy(reads)) == (True, True)
    assert flags(policy(reads, deny("*"))) == (True, True)
    assert flags(policy(reads, allow("*"))) == (False, False)
    assert flags(policy(private), policy(allow("*"))) == (False, False)
    assert flags(policy(private), policy(private)) == (True, True)
    assert flags(policy(allow("a.example", private=True))) == (True, False)
    assert flags(policy(allow("*", 443, private=True))) == (True, False)
    assert flags(policy(allow("*.example", 443, private=True))) == (True, False)


def test_which_addresses_a_rule_names() -> None:
    def flags(rule: Rule, host: str) -> tuple[bool, bool]:
        verdict = judge_connection(policy(rule), None, host, 80)
        return verdict.port_named, verdict.exact

    assert flags(allow("127.0.0.0/8", 80, private=True), "127.0.0.1") == (True, False)
    assert flags(allow("127.0.0.1", 80, private=True), "127.0.0.1") == (True, True)
    assert flags(allow("10.0.0.0/8", 80, private=True), "10.0.0.1") == (False, False)
    assert flags(allow("169.254.169.254", private=True), "169.254.169.254") == (False, True)


def test_a_denied_range_counts_for_what_a_name_resolves_to() -> None:
    address = parse_address("8.8.8.8")
    first = policy(deny("8.8.0.0/16"), allow("*"))
    verdict = judge_address(first, None, "a.example", 443, address)
    assert verdict is not None and verdict.outcome == "deny" and verdict.rule == 1
    assert judge_address(first, None, "a.example", 443, parse_address("9.9.9.9")) is None
    later = policy(allow("a.example"), deny("8.8.0.0/16"), allow("*"))
    assert judge_address(later, None, "a.example", 443, address) is None
    assert judge_address(later, None, "b.example", 443, address) is not None
    reads = allow("a.example", methods=("GET",))
    between = policy(reads, deny("8.8.0.0/16"), allow("*"))
    assert judge_address(between, None, "a.example", 443, address) is not None
    assert judge_address(policy(reads, deny("8.8.0.0/16")), None, "a.example", 443, address) is None
    floored = judge_address(policy(allow("*")), first, "a.example", 443, address)
    assert floored is not None and floored.by_floor
    assert (
        judge_address(policy(deny("8.8.0.0/16", 22), allow("*")), None, "a", 443, address) is None
    )


def test_rule_text() -> None:
    rule = allow("2606::/16", 443, methods=("GET",), paths=("/v1/*",), private=True)
    assert rule_text(rule) == "allow [2606::/16]:443 GET /v1/* private"
    assert rule_text(deny("*.example", tls="splice")) == "deny *.example splice"


_hosts = st.sampled_from(["a.example", "*.example", "*", "10.0.0.0/8", "10.1.1.1", "::/0"])
_rules = st.builds(
    Rule,
    action=st.sampled_from(["allow", "deny"]),
    host=_hosts,
    ports=st.sampled_from([(), (443,), (80, 443)]),
    methods=st.sampled_from([(), ("GET",)]),
    paths=st.sampled_from([(), ("/v1/*",)]),
    private=st.booleans(),
)
_policies = st.lists(_rules, max_size=6).map(lambda rules: Policy(rules=tuple(rules)))
_asked = st.tuples(
    st.sampled_from(["a.example", "b.example", "example", "10.1.1.1", "10.2.2.2", "::1"]),
    st.sampled_from([80, 443, 22]),
)
_requests = st.tuples(
    st.sampled_from(["GET", "POST"]), st.sampled_from(["/", "/v1/x", "/v1/../x", "*"])
)


def _no_more(now: Verdict, before: Verdict) -> None:
    strength = {"deny": 0, "inspect": 1, "allow": 2}
    assert strength[now.outcome] <= strength[before.outcome]
    if now.outcome != "deny":
        assert now.private <= before.private
        assert now.port_named <= before.port_named
        assert now.exact <= before.exact


@given(_policies, _policies, _asked, _requests)
def test_a_floor_only_takes_away(
    own: Policy, floor: Policy, asked: tuple[str, int], request: tuple[str, str]
) -> None:
    _no_more(judge_connection(own, floor, *asked), judge_connection(own, None, *asked))
    _no_more(
        judge_request(own, floor, *asked, *request), judge_request(own, None, *asked, *request)
    )


@given(_policies, _asked, _requests)
def test_what_a_connection_is_told_holds_for_its_requests(
    own: Policy, asked: tuple[str, int], request: tuple[str, str]
) -> None:
    connection = judge_connection(own, None, *asked)
    seen = judge_request(own, None, *asked, *request)
    unclear = "several ways" in seen.words
    if connection.outcome != "inspect" and not unclear:
        assert seen.outcome == connection.outcome
    if seen.outcome == "allow":
        assert connection.private <= seen.private
        assert connection.port_named <= seen.port_named
        assert connection.exact <= seen.exact


@given(_policies, _asked)
def test_rules_are_found_as_by_reading_them_one_by_one(own: Policy, asked: tuple[str, int]) -> None:
    host, port = asked
    first = next(
        (n for n, rule in enumerate(own.rules, 1)
         if not rule.methods and not rule.paths and (not rule.ports or port in rule.ports)
         and outcome(policy(Rule(host=rule.host)), host, port) == "allow"),
        None,
    )  # fmt: skip
    plain = Policy(rules=tuple(
        rule if not (rule.methods or rule.paths) else Rule(host="unrelated") for rule in own.rules
    ))  # fmt: skip
    assert judge_connection(plain, None, host, port).rule == first
