"""The command line over a daemon, as a user meets it: a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., subprocess.CompletedProcess[bytes]]
Json = Callable[..., Any]
COMMAND = (sys.executable, "-m", "agentkernel")


@pytest.fixture
def cli(daemon_dir: Path) -> Cli:
    """Runs `agentkernel ARGS…` with a deadline; stdin is empty unless given as `input`."""

    def call(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        options.setdefault("input", b"")
        return subprocess.run(
            [*COMMAND, *arguments], capture_output=True, timeout=50, check=False, **options
        )

    return call


@pytest.fixture
def ask(cli: Cli) -> Json:
    """Runs `agentkernel ARGS… --json`, which has to work, and gives what it printed."""

    def call(*arguments: str) -> Any:
        done = cli(*arguments, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    return call


@pytest.fixture(scope="module")
def box(daemon_state: Path) -> Iterator[str]:
    """The name of a sandbox that stays for the tests of a module."""
    from agentkernel.client._sync.sandbox import Sandbox
    from agentkernel.client._sync.transport import Transport

    transport = Transport(str(daemon_state))
    sandbox = Sandbox.create(name="box", transport=transport)
    yield "box"
    sandbox.remove()
    transport.close()
