"""`network why`: what decides, in its order, and what would change it."""

from __future__ import annotations

import msgspec
import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy import addresses
from agentkernel.network.policy.explain import why
from agentkernel.network.policy.model import (
    NetworkSetting,
    Operator,
    Policy,
    Rule,
    SecretBinding,
)

SETTING = NetworkSetting(
    phase="agent",
    phases={
        "agent": Policy(
            rules=(
                Rule(host="a.example", ports=(8443,), source="the allow list"),
                Rule(action="deny", host="a.example", ports=(443,), methods=("POST",)),
                Rule(action="deny", host="8.8.8.0/24"),
                Rule(host="*.example", ports=(443,), tls="splice"),
                Rule(host="api.corp", ports=(443,)),
            )
        ),
        "setup": Policy(rules=(Rule(host="*"),)),
    },
    secrets=(
        SecretBinding(reference="o/KEY", env="KEY", placeholder="x", hosts=("api.corp",)),
        SecretBinding(reference="o/B", env="B", placeholder="y", hosts=("b.example",)),
    ),
)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "own_addresses", lambda: frozenset())


def test_every_rule_for_the_host_is_shown_in_order() -> None:
    found = why(SETTING, Operator(), "a.example", 443)
    assert [(r.number, r.port, r.decided) for r in found.rules] == [
        (1, False, False), (2, True, True), (4, True, False),
    ]  # fmt: skip
    assert found.outcome == "inspect" and found.intercepted and "method" in found.tls


def test_a_request() -> None:
    assert why(SETTING, Operator(), "a.example", 443, "GET", "/x").rule == 4
    post = why(SETTING, Operator(), "a.example", 443, "POST", "/x")
    assert (post.outcome, post.rule, post.path) == ("deny", 2, "/x")


def test_tls() -> None:
    corp = why(SETTING, Operator(), "api.corp", 443)
    assert corp.intercepted and corp.secrets == ("KEY",) and "KEY" in corp.tls
    assert not why(SETTING, Operator(), "b.example", 443).intercepted
    assert "splice, so B is not swapped" in why(SETTING, Operator(), "b.example", 443).tls
    assert "reset" in why(SETTING, Operator(), "other", 443).tls


def test_what_would_change_it() -> None:
    denied = why(SETTING, Operator(), "other", 443, name="box")
    assert denied.change == (
        "agentkernel network allow box other:443",
        "agentkernel network phase box setup",
    )
    assert why(SETTING, Operator(), "api.corp", 443).change == (
        "agentkernel network deny NAME api.corp:443",
    )
    floored = why(SETTING, Operator(floor=Policy()), "api.corp", 443)
    assert floored.by_floor and "network.floor" in floored.change[0]
    assert len(floored.rules) == 1


def test_the_address_it_resolves_to() -> None:
    private = why(SETTING, Operator(), "api.corp", 443, address="10.0.0.1", name="box")
    assert private.outcome == "deny" and private.address_refused == "10.0.0.1 is private"
    assert private.change == ("agentkernel network allow box private:api.corp:443",)
    written = Operator(hosts={"api.corp": "10.0.0.1"})
    assert why(SETTING, written, "api.corp", 443, address="10.0.0.1").outcome == "allow"
    assert why(SETTING, Operator(), "api.corp", 443, address="9.9.9.9").outcome == "allow"
    ranged = why(SETTING, Operator(), "api.corp", 443, address="8.8.8.8")
    assert ranged.outcome == "deny" and "rule 3" in ranged.address_refused
    with pytest.raises(InvalidInputError):
        why(SETTING, Operator(), "api.corp", 443, address="127.1")


def test_it_can_be_sent() -> None:
    found = why(SETTING, Operator(), "a.example", 443, "GET", "/", address="9.9.9.9")
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
