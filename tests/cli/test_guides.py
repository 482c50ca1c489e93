"""The first steps, run as they stand. `…` in what is printed stands for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "first-steps.md"
DEADLINE_S = 50.0


def steps(text: str) -> list[tuple[str, str]]:
    """Each command with what stands below it."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in block.split("$ ")[1:] if block.startswith("$ ") else []:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def matches(wanted: str, got: str) -> bool:
    pattern = ".*".join(re.escape(piece) for piece in wanted.split("…"))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


def test_what_the_guide_shows(daemon_dir: Path, tmp_path: Path) -> None:
    found = steps(GUIDE.read_text())
    assert len(found) > 10
    script = [f'agentkernel() {{ "{sys.executable}" -m agentkernel "$@"; }}']
    for number, (command, _) in enumerate(found):
        script.append(f"{{ {command}\n}} >out.{number} 2>err.{number}")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for number, (command, wanted) in enumerate(found):
        got = (tmp_path / f"out.{number}").read_text()
        errors = (tmp_path / f"err.{number}").read_text()
        assert matches(wanted, got), f"{command}\nprinted\n{got}{errors}\ninstead of\n{wanted}"


def test_a_guide_that_is_wrong_is_found() -> None:
    assert steps("```console\n$ echo a\na\n$ echo b\n```\n") == [("echo a", "a\n"), ("echo b", "")]
    assert matches("a…c\n", "abc\n") and not matches("a\n", "b\n")
