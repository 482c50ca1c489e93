"""`is_wider` may say yes for nothing, but never no for something."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.network.policy.judging import judge_address, judge_request
from agentkernel.network.policy.model import Caps, Policy, Rule
from agentkernel.network.policy.names import parse_address
from agentkernel.network.policy.request import is_wider

A = Rule(host="a.example", ports=(80, 443))
DENY_A = Rule(action="deny", host="a.example")
BELOW = Rule(host="*.example", ports=(80, 443))
ALL = Rule(host="*")


def policy(*rules: Rule) -> Policy:
    return Policy(rules=rules)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (policy(), policy()),
        (policy(), policy(ALL)),
        (policy(A), policy(A)),
        (policy(A), policy(BELOW)),
        (policy(A), policy(ALL)),
        (policy(BELOW), policy(ALL)),
        (policy(Rule(host="*.b.example", ports=(80,))), policy(BELOW)),
        (policy(Rule(host="a.example", ports=(443,))), policy(A)),
        (policy(Rule(host="a.example", ports=(443,), methods=("GET",))), policy(A)),
        (
            policy(Rule(host="a", paths=("/v1/x", "/v1/y*"))),
            policy(Rule(host="a", paths=("/v1/*",))),
        ),
        (policy(DENY_A, ALL), policy(ALL)),
        (policy(DENY_A, ALL), policy(DENY_A, ALL)),
        (policy(Rule(host="b.example")), policy(DENY_A, ALL)),
        (policy(Rule(host="10.1.0.0/16")), policy(Rule(host="10.0.0.0/8"))),
        (Policy(caps=Caps(upload_bytes=5)), Policy()),
        (Policy(caps=Caps(connections=5)), Policy()),
    ],
)
def test_no_wider(now: Policy, before: Policy) -> None:
    assert not is_wider(now, before)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (policy(A), policy()),
        (policy(ALL), policy(BELOW)),
        (policy(BELOW), policy(A)),
        (policy(Rule(host="example", ports=(80,))), policy(BELOW)),
        (policy(Rule(host="8.8.8.8")), policy(ALL)),
        (policy(Rule(host="a.example")), policy(A)),
        (policy(A), policy(Rule(host="a.example", methods=("GET",)))),
        (policy(A), policy(Rule(host="a.example", paths=("/v1/*",)))),
        (policy(ALL), policy(DENY_A, ALL)),
        (policy(A, DENY_A), policy(DENY_A, A)),
        (policy(ALL), policy(Rule(action="deny", host="8.8.8.0/24"), ALL)),
        (policy(Rule(host="a.example", ports=(80,), private=True)), policy(A)),
        (policy(Rule(host="a.example", ports=(80,), tls="splice")), policy(A)),
        (policy(Rule(host="10.0.0.0/8")), policy(Rule(host="10.1.0.0/16"))),
        (policy(Rule(host="::/0")), policy(Rule(host="0.0.0.0/0"))),
        (
            policy(Rule(host="a", methods=("GET",))),
            policy(Rule(host="a", methods=("GET",)), Rule(action="deny", host="10.0.0.0/8"), ALL),
        ),
        (Policy(), Policy(caps=Caps(upload_bytes=5))),
        (Policy(caps=Caps(connections=500)), Policy()),
    ],
)
def test_wider(now: Policy, before: Policy) -> None:
    assert is_wider(now, before)


_rules = st.builds(
    Rule,
    action=st.sampled_from(["allow", "deny"]),
    host=st.sampled_from(["a.b", "*.b", "*", "b", "10.0.0.0/8", "10.1.1.1", "0.0.0.0/0"]),
    ports=st.sampled_from([(), (443,), (80, 443)]),
    methods=st.sampled_from([(), ("GET",), ("GET", "POST")]),
    paths=st.sampled_from([(), ("/v1/*",), ("/v1/x",), ("/*",)]),
)
_policies = st.lists(_rules, max_size=4).map(lambda rules: Policy(rules=tuple(rules)))
_ADDRESS = parse_address("10.1.1.1")


@settings(max_examples=300)
@given(_policies, _policies)
def test_what_is_not_wider_allows_nothing_new(now: Policy, before: Policy) -> None:
    if is_wider(now, before):
        return
    for host in ("a.b", "c.b", "b", "c", "10.1.1.1", "10.2.2.2", "9.9.9.9"):
        for port in (80, 443, 22):
            for method in ("GET", "POST", "PUT"):
                for path in ("/", "/v1/x", "/v1/y", "/v1/../x"):
                    asked = (host, port, method, path)
                    if judge_request(now, None, *asked).outcome == "allow":
                        assert judge_request(before, None, *asked).outcome == "allow"
            if judge_address(before, None, host, port, _ADDRESS) is not None and host != "10.1.1.1":
                new = judge_request(now, None, host, port, "GET", "/").outcome
                assert new == "deny" or judge_address(now, None, host, port, _ADDRESS) is not None
