"""The command line as a user meets it: a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.local.directory import SandboxDirectory

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


@pytest.fixture
def own_state(state_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """A state of the test's own that shares the images, which take a while to make. What a test
    that failed left running is ended."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    (path / "images").symlink_to(state_dir / "images")
    (state_dir / "images").mkdir(exist_ok=True)
    yield path
    for left in (path / "sandboxes").glob("*"):
        if pid := SandboxDirectory(left).process():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
