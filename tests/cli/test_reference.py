"""The page about the command line says what the command line says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentkernel.cli.main import _COMMANDS, build_parser

ROOT = Path(__file__).resolve().parents[2]


def test_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_cli_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, "run tools/generate_cli_reference.py"


@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_the_fast_parser_is_the_whole_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    helps = []
    for parser in (build_parser(), build_parser([command])):
        with pytest.raises(SystemExit):
            parser.parse_args([command, "--help"])
        helps.append(capsys.readouterr().out)
    assert helps[0] == helps[1]
