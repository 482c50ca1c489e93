"""The official client of the protocol, `agentkernel acp` and a daemon of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def acp_state(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory, with the images of all tests, whose daemon is started by whoever needs it
    first; all gone at the end."""
    path = tmp_path_factory.mktemp("acp")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    yield path
    environment = {**os.environ, "AGENTKERNEL_STATE_DIR": str(path)}
    for words in (("sandbox", "gc", "--older-than", "1ms"), ("daemon", "stop")):
        subprocess.run(
            [sys.executable, "-m", "agentkernel", *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the agent's own program in it."""
    path = tmp_path_factory.mktemp("project")
    shutil.copy(Path(__file__).with_name("fake_agent.py"), path / "fake_agent.py")
    (path / "notes.txt").write_text("one\n")
    return path
