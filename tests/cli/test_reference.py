"""The page about the command line says what the command line says."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentkernel.cli import manual
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


def every_verb() -> list[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    found: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = []

    def walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
        found.append((words, parser))
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    walk(inner, (*words, name))

    walk(build_parser(), ())
    return found


VERBS = every_verb()
NAMES = [" ".join(words) or "agentkernel" for words, _ in VERBS]


@pytest.mark.parametrize(("words", "parser"), VERBS, ids=NAMES)
def test_every_help_is_a_manual(words: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
    text = parser.format_help()
    assert parser.description and parser.description[0].isupper()
    assert "\nexamples:\n" in text
    assert manual.name_of(parser) == " ".join(words)
    if not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
        assert "\nexit status:\n" in text
        assert "\nenvironment:\n" in text or words == ("completion",)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_examples_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C.UTF-8")  # an example passes it on, and not every user has it
    seen = 0
    for _, parser in every_verb():
        for line in manual.examples_of(parser):
            build_parser().parse_args(shlex.split(line)[1:])
            seen += 1
    assert seen > 40


def test_the_manual_has_no_entry_too_many() -> None:
    assert set(manual._EXAMPLES) == {" ".join(words) for words, _ in every_verb()}


def test_both_names_are_the_same_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["ak"] == scripts["agentkernel"] == "agentkernel.cli.main:program"
