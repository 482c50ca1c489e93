"""How the command's own process ends when what it says can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = [sys.executable, "-m", "agentkernel", "completion", "bash"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
def test_a_full_disk_is_told(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            WORDS, stdout=full, stderr=subprocess.PIPE, env=environment, timeout=60, check=False
        )
    assert done.returncode == 125
    assert done.stderr == b"agentkernel: No space left on device\n"


def test_a_closed_stdout_is_no_failure() -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", *WORDS]
    done = subprocess.run(shell, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_everything_is_written_to_a_pipe() -> None:
    done = subprocess.run(WORDS, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"\n") and b"complete -F _agentkernel" in done.stdout
