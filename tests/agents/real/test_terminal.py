"""Agents on a real terminal: colours, a paste, another size, Ctrl-C, and what comes after."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...server.daemon_process import eventually
from ..scripted import Script, ScriptedModels
from .lab import DONE, RIGHT, WRONG, Lab, make_project, turns
from .terminals import COLOURED, PASTING, Terminal

READY = {"claude": "bypass permissions on", "codex": "Ask Codex to do anything"}
PASTED = "Mend add\nand say when it is done"
QUESTION = "[d]iff, [a]pply, [k]eep"
CTRL_C = "\x03"


@pytest.mark.parametrize("agent", READY)
def test_an_agent_on_a_terminal(
    agent: str, lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    models.play(Script(turns()))
    command = [*lab.command, agent, "--name", "seen"]
    terminal = Terminal(command, cwd=project, env=lab.environment(), rows=40, columns=100)
    try:
        terminal.wait_for(READY[agent])
        assert PASTING in terminal.output
        assert COLOURED.search(terminal.output)
        assert _sizes(lab) == ["40 100"]

        # A new line in what is pasted is part of it: only the key sends it.
        terminal.paste(PASTED)
        terminal.wait_for("and say when it is done")
        assert not models.work()
        terminal.send("\r")
        terminal.wait_for(DONE)
        prompts = [asked.conversation.prompts for asked in models.work() if asked.conversation]
        assert any(PASTED in prompt for prompt in prompts[0]), prompts[0]

        terminal.resize(50, 132)
        eventually(lambda: _sizes(lab) == ["50 132"])

        _leave(terminal)
        assert (project / "calc.py").read_text() == WRONG
        terminal.send("d\n")
        terminal.wait_for("+    return a + b")
        terminal.send("a\n")
        assert terminal.wait() == 0, terminal.shown()[-1500:]
        assert (project / "calc.py").read_text() == RIGHT
    finally:
        terminal.close()


def _sizes(lab: Lab) -> list[str]:
    """Of all terminals inside."""
    found = lab.cli(
        "exec", "seen", "--", "sh", "-c", "for t in /dev/pts/[0-9]*; do stty size <$t; done"
    )
    return found.stdout.split("\n")[:-1]


def _leave(terminal: Terminal) -> None:
    """One Ctrl-C may only clear or warn; the next, if it comes soon, ends it."""
    for _ in range(8):
        terminal.send(CTRL_C)
        try:
            terminal.wait_for(QUESTION, seconds=0.5)
        except AssertionError:
            continue
        return
    terminal.wait_for(QUESTION)
