"""The blocking client is what the generator makes of the other one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import agentkernel

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "src" / "agentkernel" / "client"


def test_generated_code_is_up_to_date() -> None:
    tool = ROOT / "tools" / "generate_sync_client.py"
    command = [sys.executable, str(tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"run tools/generate_sync_client.py:\n{done.stdout}"


def test_nothing_of_asyncio_is_left_in_it() -> None:
    for path in (CLIENT / "_sync").glob("*.py"):
        lines = path.read_text().splitlines()[1:]
        left = [line for line in lines if "async" in line.lower() or "await" in line]
        assert not left, f"{path}: {left}"


def test_what_the_typescript_client_takes_from_here_is_up_to_date() -> None:
    tool = ROOT / "tools" / "generate_typescript.py"
    command = [sys.executable, str(tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"run tools/generate_typescript.py:\n{done.stdout}{done.stderr}"


def test_both_clients_have_one_version() -> None:
    package = json.loads((ROOT / "sdks" / "typescript" / "package.json").read_text())
    assert package["version"] == agentkernel.__version__
