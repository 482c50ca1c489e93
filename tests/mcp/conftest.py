"""The official client against a real daemon, over both transports and both eras of the protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .connections import OWNERS, Connect, connections


@pytest.fixture(scope="session")
def mcp_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory with its daemon, both gone at the end with every owner's sandboxes."""
    path = tmp_path_factory.mktemp("mcp")
    environment = {**os.environ, "AGENTKERNEL_STATE_DIR": str(path)}

    def agentkernel(*words: str, owner: str = "") -> None:
        subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            env={**environment, "AGENTKERNEL_OWNER": owner},
            stdout=subprocess.DEVNULL,
            timeout=50,
            check=True,
        )

    agentkernel("serve")
    yield path
    for owner in ("", *OWNERS):
        agentkernel("sandbox", "gc", "--older-than", "1ms", owner=owner)
    agentkernel("daemon", "stop")


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def connect(mcp_state: Path, transport: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Opens connections of the official client over one transport."""
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(mcp_state))
    with connections(mcp_state, transport) as connect:
        yield connect
