"""Profiles, presets and phases become rules, and nothing else decides later."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentkernel.config.reading import parse
from agentkernel.config.resolving import network_body, resolve
from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.judging import judge_connection, judge_request
from agentkernel.network.policy.model import Caps, NetworkSetting, Policy, Rule
from agentkernel.network.policy.operator import operator_setting
from agentkernel.network.policy.presets import ECOSYSTEMS, PRESETS, expand_presets
from agentkernel.network.policy.request import (
    NetworkRequest,
    PhaseRequest,
    expand_floor,
    expand_network,
)
from agentkernel.network.policy.targets import check_rule
from agentkernel.security.profiles import SECURITY_PROFILES

READS = ("GET", "HEAD")
REGISTRIES = (
    Rule(host="mirror.corp", ports=(443,), methods=READS, private=True,
         source="registries: pip (/etc/pip.conf)"),
    Rule(host="npm.example", ports=(443,), methods=READS, source="registries: npm (default)"),
)  # fmt: skip


def expanded(profile: str = "moderate", **words: Any) -> NetworkSetting:
    return expand_network(NetworkRequest(**words), profile, REGISTRIES)


def hosts(policy: Policy) -> list[str]:
    return [rule.host for rule in policy.rules]


def outcome(policy: Policy, host: str, port: int = 443) -> str:
    return judge_connection(policy, None, host, port).outcome


def test_profiles() -> None:
    assert expand_network(None, "restrictive", REGISTRIES).policy == Policy()
    moderate = expand_network(None, "moderate", REGISTRIES).policy
    assert moderate.rules == REGISTRIES
    permissive = expand_network(None, "permissive", REGISTRIES).policy
    for host in ("a.example", "8.8.8.8"):
        verdict = judge_connection(permissive, None, host, 22)
        assert (verdict.outcome, verdict.private) == ("allow", False)
    with pytest.raises(InvalidInputError):
        expand_network(None, "open", ())


def test_a_private_mirror_is_read_only_among_all_that_is_public() -> None:
    policy = expand_network(None, "permissive", REGISTRIES).policy
    assert judge_connection(policy, None, "mirror.corp", 443).private
    assert judge_request(policy, None, "mirror.corp", 443, "GET", "/").private
    assert judge_request(policy, None, "mirror.corp", 443, "POST", "/").outcome == "deny"
    assert judge_request(policy, None, "npm.example", 443, "POST", "/").outcome == "allow"


def test_what_is_listed_comes_on_top_of_the_profile() -> None:
    policy = expanded(allow=["a.example"]).policy
    assert hosts(policy) == ["a.example", "mirror.corp", "npm.example"]
    assert hosts(expanded("restrictive", allow=["a.example"]).policy) == ["a.example"]


def test_an_empty_list_means_none() -> None:
    assert expanded("permissive", presets=[]).policy == Policy()
    assert expanded("permissive", presets=["none"]).policy == Policy()
    assert hosts(expanded(presets=["none"], allow=["a.example"]).policy) == ["a.example"]
    assert expand_floor([], REGISTRIES) == Policy()
    assert outcome(expanded("permissive", presets=[]).policy, "a.example") == "deny"


def test_the_order() -> None:
    rule = Rule(host="r.example")
    policy = expanded(
        allow=["a.example"], deny=["d.example"], rules=[rule], presets=["openai"]
    ).policy
    assert hosts(policy) == ["d.example", "r.example", "a.example", "api.openai.com"]
    sources = [rule.source for rule in policy.rules]
    assert sources == ["the deny list", "the rules", "the allow list", "preset openai"]


def test_phases() -> None:
    setting = expanded(
        phases={"setup": PhaseRequest(presets=["public"]), "agent": PhaseRequest()},
        phase="setup",
        caps=Caps(upload_bytes=5),
    )
    assert setting.phase == "setup" and setting.phases.keys() == {"setup", "agent", "default"}
    assert outcome(setting.phases["setup"], "a.example") == "allow"
    assert setting.phases["agent"].rules == ()
    assert setting.phases["default"].rules == REGISTRIES
    assert all(policy.caps.upload_bytes == 5 for policy in setting.phases.values())
    assert expanded(phases={"default": PhaseRequest(allow=["a.example"])}).policy.rules[0].host == (
        "a.example"
    )


@pytest.mark.parametrize(
    "words",
    [
        {"phase": "setup"}, {"phase": "A"}, {"phases": {"A": PhaseRequest()}},
        {"phases": {"": PhaseRequest()}}, {"phases": {"-a": PhaseRequest()}},
        {"phases": {"x" * 33: PhaseRequest()}}, {"phases": {"a\n": PhaseRequest()}},
        {"phases": {"default": PhaseRequest()}, "allow": ["a.example"]},
        {"phases": {"default": PhaseRequest()}, "presets": []},
        {"presets": ["none", "openai"]}, {"presets": ["nope"]}, {"allow": ["127.1"]},
        {"phases": {"a": PhaseRequest(presets=["x" * 9999])}}, {"deny": [""]},
        {"rules": [Rule(host="127.0.0.1")]},
    ],
)  # fmt: skip
def test_what_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        expanded(**words)
    assert len(caught.value.message) < 400


def test_too_many_rules() -> None:
    with pytest.raises(InvalidInputError, match="too many"):
        expand_network(None, "moderate", tuple(Rule(host=f"h{n}.example") for n in range(2049)))


def test_an_unknown_preset_is_told_the_list() -> None:
    with pytest.raises(InvalidInputError) as caught:
        expand_presets(["pypi"], ())
    assert "registries:splice" in str(caught.value.hint)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_expands_to_rules_that_hold(name: str) -> None:
    for rule in expand_presets([name], REGISTRIES):
        assert check_rule(rule) == rule
        assert rule.source
    assert PRESETS[name].about


def test_registries_and_their_parts() -> None:
    assert tuple(expand_presets(["registries"], REGISTRIES)) == REGISTRIES
    assert [r.host for r in expand_presets(["pip"], REGISTRIES)] == ["mirror.corp"]
    assert [r.host for r in expand_presets(["npm", "pip"], REGISTRIES)] == [
        "npm.example", "mirror.corp",
    ]  # fmt: skip
    assert expand_presets(["cargo"], REGISTRIES) == []
    shared = Rule(host="all.corp", source="registries: pip (/etc/pip.conf), npm (~/.npmrc)")
    assert expand_presets(["npm"], (shared,)) == [shared]
    assert expand_presets(["go"], (shared,)) == []
    for name in ("registries:splice", "pip:splice"):
        rule = expand_presets([name], REGISTRIES)[0]
        assert (rule.host, rule.methods, rule.tls, rule.private) == (
            "mirror.corp", (), "splice", True,
        )  # fmt: skip
        assert rule.source == "registries:splice: pip (/etc/pip.conf)"
    assert all(f"{name}:splice" in PRESETS for name in ECOSYSTEMS)


def test_public_is_always_last() -> None:
    names = [r.source for r in expand_presets(["public", "openai"], ())]
    assert names == ["preset openai", *["preset public"] * 3]


def test_a_setting_survives_being_stored() -> None:
    setting = expanded("permissive", allow=["a.example"], phases={"agent": PhaseRequest()})
    assert msgspec.json.decode(msgspec.json.encode(setting), type=NetworkSetting) == setting


def test_the_operators_settings() -> None:
    assert operator_setting({}, ()).floor is None
    operator = operator_setting(
        {
            "network.hosts": {"Git.Corp": "10.0.0.7", "six.corp": "fd00:0::1"},
            "network.floor": ["github", "a.example:8443"],
            "network.resolver": "10.0.0.53",
            "network.upstream_proxy": "http://proxy.corp:3128",
            "network.patterns": ["AKIA[A-Z0-9]{16}"],
            "network.upstream_ca": "/etc/ca.pem",
            "sandbox.profile": "moderate",
        },
        REGISTRIES,
    )
    assert operator.hosts == {"git.corp": "10.0.0.7", "six.corp": "fd00::1"}
    assert operator.resolver == "10.0.0.53:53"
    assert operator.floor is not None
    assert hosts(operator.floor)[:2] == ["a.example", "github.com"]
    assert operator_setting({"network.resolver": "[fd00::53]:5353"}, ()).resolver == (
        "[fd00::53]:5353"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hosts", {"a b": "10.0.0.1"}), ("hosts", {"a": "127.1"}), ("hosts", {"127.1": "10.0.0.1"}),
        ("floor", ["127.1"]), ("floor", ["none", "github"]), ("resolver", "dns.corp"),
        ("resolver", "10.0.0.1:0"), ("resolver", "10.0.0.1:x"), ("resolver", "[::1"),
        ("upstream_proxy", "socks5://x"), ("upstream_proxy", "http://x/path"),
        ("patterns", ["("]), ("patterns", ["(a+)+b"]), ("patterns", ["(a|b){3,}"]),
    ],
)  # fmt: skip
def test_settings_of_the_operator_that_mean_nothing(key: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"network.{key}"):
        operator_setting({f"network.{key}": value}, ())


def test_what_files_say_is_what_a_request_takes() -> None:
    text = """
[network]
presets = ["registries"]
allow = ["a.example"]
deny = ["b.example"]
phase = "agent"
max_connections = 5
max_connections_per_second = 6
max_names = 7
max_upload = "1M"
max_download = "2M"
max_upload_rate = 8
max_download_rate = 9
[network.phases.agent]
allow = ["c.example:443"]
"""
    file = parse(text.encode(), "/x/agentkernel.toml", "project", owner=0)
    body = network_body(resolve({}, file, None))
    setting = expand_network(msgspec.convert(body, NetworkRequest), "moderate", REGISTRIES)
    assert hosts(setting.policy) == ["c.example"]
    assert hosts(setting.phases["default"]) == [
        "b.example", "a.example", "mirror.corp", "npm.example",
    ]  # fmt: skip
    assert setting.policy.caps == Caps(
        connections=5, connections_per_second=6, names=7, upload_bytes=1 << 20,
        download_bytes=2 << 20, upload_rate=8, download_rate=9,
    )  # fmt: skip


def test_files_and_the_gateway_have_the_same_defaults() -> None:
    settings = resolve({}, None, None).settings
    for key, field in (
        ("max_connections", "connections"), ("max_names", "names"),
        ("max_connections_per_second", "connections_per_second"), ("max_upload", "upload_bytes"),
    ):  # fmt: skip
        assert settings[f"network.{key}"].value == getattr(Caps(), field)
    for name, profile in SECURITY_PROFILES.items():
        assert resolve({"sandbox.profile": name}, None, None).value("network.presets") == (
            profile.network
        )
        assert set(profile.network) <= PRESETS.keys()
