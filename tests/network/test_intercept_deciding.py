"""Which places a secret's hosts mean."""

from __future__ import annotations

import pytest

from agentkernel.network.intercept.deciding import needs_interception
from agentkernel.network.policy.model import NetworkSetting, SecretBinding


@pytest.mark.parametrize(
    ("target", "host", "port", "means"),
    [
        ("api.example.org", "api.example.org", 443, True),
        ("api.example.org", "api.example.org", 80, False),
        ("api.example.org:8443", "api.example.org", 8443, True),
        ("api.example.org:8443", "api.example.org", 443, False),
        ("*.example.org", "api.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "notexample.org", 443, False),
        ("*.example.org", ".example.org", 443, False),
        ("api.example.org", "api.example.org.evil.org", 443, False),
        ("*", "anything.org", 443, False),
    ],
)
def test_a_target_means_what_it_says(target: str, host: str, port: int, means: bool) -> None:
    binding = SecretBinding(reference="u/K", env="K", placeholder="p" * 20, hosts=(target,))
    assert needs_interception(NetworkSetting(secrets=(binding,)), host, port) is means


def test_the_first_secret_switches_interception_on() -> None:
    binding = SecretBinding(reference="u/K", env="K", placeholder="p" * 20, hosts=("a.org",))
    assert not needs_interception(NetworkSetting(), "a.org", 443)
    setting = NetworkSetting(secrets=(binding,))
    assert needs_interception(setting, "a.org", 443)
    assert not needs_interception(setting, "b.org", 443)
