"""The command line as a user meets it: a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., subprocess.CompletedProcess[bytes]]
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
