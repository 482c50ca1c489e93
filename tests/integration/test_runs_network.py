"""Sandboxes without a daemon: no gateway, so no network, which is said and never pretended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.base import notices
from agentkernel.errors import UnsupportedError
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest, PhaseRequest


@pytest.mark.parametrize(
    "asked",
    [
        {"network": NetworkRequest(presets=["registries"])},
        {"network": NetworkRequest(allow=["example.org"])},
        {"network": NetworkRequest(presets=[], phases={"later": PhaseRequest(presets=["github"])})},
        {"network": NetworkRequest()},
        {"secrets": ["KEY@example.org"]},
        {"ports": ["0:8000"]},
    ],
    ids=["preset", "host", "phase", "the profile by name", "secret", "port"],
)
async def test_what_needs_a_daemon_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    async with Runs(tmp_path) as runs:
        with pytest.raises(UnsupportedError, match="a daemon") as refused:
            await runs.create(SandboxSpec(**asked))
    assert refused.value.hint and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("spec", "notice"),
    [
        (SandboxSpec(), True),
        (SandboxSpec(profile="restrictive"), False),
        (SandboxSpec(network=NetworkRequest(presets=["none"])), False),
        (SandboxSpec(network=NetworkRequest(presets=[])), False),
    ],
    ids=["default", "restrictive", "none", "empty"],
)
async def test_what_holds_is_said(runs: Runs, spec: SandboxSpec, notice: bool) -> None:
    sandbox = await runs.create(spec)
    [line] = [line for line in sandbox.effective if line.what == "network"]
    assert line.value == "none: loopback only"
    assert any("network" in text for text in notices(sandbox.effective)) is notice
    assert await sandbox.network_refusals() == {}
