"""The page about policies names every preset, profile and bound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agentkernel.network.policy.model import Caps, Rule
from agentkernel.network.policy.presets import PRESETS
from agentkernel.security.profiles import SECURITY_PROFILES

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "reference" / "network-policy.md").read_text()


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    assert f"`{name}`" in PAGE.partition("## Presets")[2].partition("## Profiles")[0]


@pytest.mark.parametrize("name", SECURITY_PROFILES)
def test_profiles(name: str) -> None:
    presets = ", ".join(f"`{preset}`" for preset in SECURITY_PROFILES[name].network) or "none"
    assert f"| `{name}` | {presets} |" in PAGE


def test_the_rest() -> None:
    for field in msgspec.structs.fields(Rule):
        assert f"| `{field.name}` |" in PAGE
    caps = Caps()
    for number in (caps.connections, caps.connections_per_second, caps.names):
        assert f"({number})" in PAGE
