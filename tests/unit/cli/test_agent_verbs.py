"""How the command lines of agents are taken apart."""

from __future__ import annotations

import pytest

from agentkernel.cli.main import AGENTS, build_parser

Words = list[str]


@pytest.mark.parametrize(
    ("words", "task", "rest"),
    [
        ([], None, []),
        (["fix it"], "fix it", []),
        (["--json", "fix it"], "fix it", []),
        (["fix it", "--json"], "fix it", []),
        (["--json", "--", "--resume", "x"], None, ["--resume", "x"]),
        (["fix it", "--json", "--", "a", "--", "b"], "fix it", ["a", "--", "b"]),
        (["--json", "-", "--"], "-", []),
    ],
)
def test_ours_stand_in_any_order_before_the_agents_words(
    words: Words, task: str | None, rest: Words
) -> None:
    for line in (["agent", "run", "claude", *words], ["claude", *words]):
        options = build_parser(line).parse_args(line)
        assert (options.agent, options.task, options.words) == ("claude", task, rest)
        assert options.json is ("--json" in words)


def test_an_agents_own_options_need_the_mark(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["claude", "--resume", "x"], ["agent", "run", "claude", "a", "b"]):
        with pytest.raises(SystemExit):
            build_parser(line).parse_args(line)
        assert "unrecognized arguments" in capsys.readouterr().err


def test_every_agent_of_ours_is_a_verb() -> None:
    for name in AGENTS:
        options = build_parser([name]).parse_args([name, "--keep", "t"])
        assert (options.command, options.agent, options.keep) == (name, name, True)
