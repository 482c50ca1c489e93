"""Command lines of all agents in all modes, and what hostile words become in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from agentkernel.agents.commands import (
    MAX_WORD,
    Fill,
    Mode,
    check_command,
    command_line,
    environment,
    filled,
    home_path,
    install_environment,
    install_path,
    install_steps,
    path_entries,
    task_goes,
)
from agentkernel.agents.definition import AgentDefinition
from agentkernel.agents.reading import Definitions
from agentkernel.errors import InvalidInputError, UnsupportedError

OURS = Definitions(Path("/nonexistent"))
FILL = Fill(
    kit="/kit",
    version="1.2.3",
    home="/root",
    workspace="/work/x",
    task="do it",
    task_file="/tmp/task",
    model="M",
    session="S",
    context="/root/context.md",
    mcp="/root/mcp.json",
)
# agent, mode, "resume" if it goes on: the words, without those of a model and of MCP servers
LINES = """
claude   interactive           claude --dangerously-skip-permissions
claude   interactive  resume   claude --dangerously-skip-permissions --continue
claude   headless              < claude --dangerously-skip-permissions --output-format stream-json --verbose -p
claude   headless     resume   < claude --dangerously-skip-permissions --output-format stream-json --verbose --resume S -p
claude   acp                   claude-agent-acp
codex    interactive           codex --dangerously-bypass-approvals-and-sandbox
codex    interactive  resume   codex resume --dangerously-bypass-approvals-and-sandbox --last
codex    headless              < codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -
codex    headless     resume   < codex exec resume --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox S -
codex    acp                   codex-acp
gemini   interactive           gemini --yolo
gemini   interactive  resume   gemini --yolo --resume latest
gemini   headless              < gemini --yolo --output-format stream-json
gemini   headless     resume   < gemini --yolo --output-format stream-json --resume S
gemini   acp                   gemini --acp
opencode interactive           opencode --auto
opencode interactive  resume   opencode --auto --continue
opencode headless              < opencode run --format json --auto
opencode headless     resume   < opencode run --format json --auto --session S
opencode acp                   opencode acp
aider    interactive           aider --read /root/context.md --yes-always
aider    interactive  resume   aider --restore-chat-history --read /root/context.md --yes-always
aider    headless              aider --read /root/context.md --no-pretty --no-stream --yes-always --message-file /tmp/task
aider    headless     resume   aider --restore-chat-history --read /root/context.md --no-pretty --no-stream --yes-always --message-file /tmp/task
"""  # noqa: E501
STDIN = ["sh", "-c", 'exec "$@" <"$0"', "/tmp/task"]


def _without_model() -> Fill:
    return msgspec.structs.replace(FILL, model=None)


def _rows() -> list[tuple[str, str, bool, list[str]]]:
    rows = []
    for line in LINES.strip().splitlines():
        agent, mode, *words = line.split()
        resume = words[0] == "resume"
        words = words[resume:]
        rows.append((agent, mode, resume, [*STDIN, *words[1:]] if words[0] == "<" else words))
    return rows


@pytest.mark.parametrize(("agent", "mode", "resume", "words"), _rows())
def test_command_lines(agent: str, mode: Mode, resume: bool, words: list[str]) -> None:
    made = command_line(OURS.get(agent), mode, _without_model(), resume=resume)
    assert made == words


def test_every_mode_of_a_tested_agent_is_in_the_table() -> None:
    shown = {(agent, mode, resume) for agent, mode, resume, _ in _rows()}
    for name in OURS.names():
        definition = OURS.get(name)
        if not definition.tested:
            continue
        for mode in ("interactive", "headless", "acp"):
            for resume in (False, True):
                if (name, mode, resume) in shown or (mode == "acp" and resume):
                    continue
                with pytest.raises(UnsupportedError):
                    command_line(definition, mode, FILL, resume=resume)


@pytest.mark.parametrize("agent", [name for name in OURS.names() if OURS.get(name).tested])
def test_added_words_come_before_the_task_and_each_once(agent: str) -> None:
    definition = OURS.get(agent)
    for resume in (False, True):
        made = command_line(
            definition, "headless", FILL, resume=resume, words=["--own"], mcp_words=["--mcp"]
        )
        assert made.count("M") == 1 and made.count("--own") == 1 and made.count("--mcp") == 1
        attended = command_line(definition, "interactive", FILL, attended=True)
        assert not set(definition.command.unattended) & set(attended)


def _defined(**command: list[str]) -> AgentDefinition:
    values = {"name": "x", "title": "X", "version": "1", "command": command}
    return msgspec.convert(values, AgentDefinition)


def test_words_without_a_place_go_before_two_dashes_else_to_the_end() -> None:
    fill = _without_model()
    dashed = _defined(headless=["x", "--", "{task}"], unattended=["-y"])
    assert command_line(dashed, "headless", fill, words=["-w"]) == ["x", "-y", "-w", "--", "do it"]
    plain = _defined(headless=["x", "-p", "{task}"], unattended=["-y"])
    assert command_line(plain, "headless", fill) == ["x", "-p", "do it", "-y"]


@pytest.mark.parametrize(
    "task", ["--version", "-", "a\nb", "$(id)`id`;'\"\\", "{kit} {nothing}", "ü\udc80", " "]
)
def test_a_task_is_one_word_whatever_is_in_it(task: str) -> None:
    definition = _defined(headless=["x", "--task={task}", "--", "{task}"])
    made = command_line(
        definition, "headless", msgspec.structs.replace(FILL, task=task, model=None)
    )
    assert made == ["x", f"--task={task}", "--", task]


def test_a_task_on_stdin_arrives_as_it_is(tmp_path: Path) -> None:
    task = "--help\n$(id) 'x'\n" * 70_000  # 1 MiB: no word of a command line can have that
    file = tmp_path / "a task"
    file.write_text(task)
    definition = _defined(headless=["cat"])
    fill = msgspec.structs.replace(FILL, task=task, task_file=str(file), model=None)
    assert task_goes(definition) == "stdin"
    made = command_line(definition, "headless", fill)
    done = subprocess.run(made, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == task


@pytest.mark.parametrize("task", ["a\0b", "x" * (MAX_WORD + 1), None])
def test_a_task_that_can_not_be_a_word_is_refused(task: str | None) -> None:
    definition = _defined(headless=["x", "{task}"])
    fill = msgspec.structs.replace(FILL, task=task, model=None)
    with pytest.raises(InvalidInputError):
        command_line(definition, "headless", fill)
    allowed = msgspec.structs.replace(FILL, task="x" * MAX_WORD, model=None)
    assert command_line(definition, "headless", allowed)[1] == "x" * MAX_WORD


def test_what_an_agent_can_not_do_is_said() -> None:
    definition = _defined(acp=["x"])
    for mode in ("interactive", "headless"):
        with pytest.raises(UnsupportedError, match=mode):
            command_line(definition, mode, FILL)
    with pytest.raises(UnsupportedError, match="model"):
        command_line(_defined(headless=["x"]), "headless", FILL)


def test_one_that_speaks_acp_is_told_by_the_protocol() -> None:
    definition = _defined(acp=["x", "acp"], unattended=["-y"], model=["-m", "{model}"])
    assert command_line(definition, "acp", FILL, words=["-w"]) == ["x", "acp", "-w"]
    placed = _defined(acp=["x", "{unattended}", "acp"], unattended=["-y"])
    assert command_line(placed, "acp", FILL) == ["x", "-y", "acp"]


def test_fields() -> None:
    fill = msgspec.structs.replace(FILL, secrets={"KEY": "abcdefghij"})
    assert filled("{secret:KEY} {secret:KEY:last3} {secret:NONE:last3}|", fill) == (
        "abcdefghij hij |"
    )
    assert filled('{"a": {}, "{home}": { b = 1 }}', fill) == '{"a": {}, "/root": { b = 1 }}'
    assert filled("~/{version}", fill) == "/root/1.2.3"
    assert home_path("~/x", "/home/u/") == "/home/u/x"
    assert home_path("/x/~/y", "/root") == "/x/~/y"
    with pytest.raises(InvalidInputError, match="{nothing}"):
        filled("{nothing}", fill)


def test_installing_has_node_first_and_keeps_it_if_it_is_needed() -> None:
    for name in ("claude", "gemini", "codex", "opencode"):
        definition = OURS.get(name)
        steps = install_steps(definition, FILL)
        assert steps[0][-2:] == ["/kit", definition.install.node]
        assert install_path(definition, FILL) == ["/kit/node/bin"]
        kept = name in ("claude", "gemini")
        assert (steps[-1] == ["rm", "-rf", "/kit/node"]) is not kept
        assert path_entries(definition, FILL) == ["/kit/bin"]
        assert check_command(definition, FILL)[0].startswith("/kit/bin/")
        assert not any("{" in value for value in install_environment(definition, FILL).values())
    assert install_path(OURS.get("aider"), FILL) == []
    assert environment(OURS.get("claude"), FILL)["CLAUDE_CODE_EXECUTABLE"] == "/kit/bin/claude"
