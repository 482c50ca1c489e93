"""Each agent does a task: it reads, edits, sees a test fail, edits again and sees it pass."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ..scripted import ScriptedModels, by_key
from .lab import (
    AGENTS,
    DONE,
    FORBIDDEN,
    HOST_OF,
    KEY_OF,
    KEYS,
    RIGHT,
    TRY,
    WRONG,
    Lab,
    make_project,
    task_script,
    task_words,
)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_does_its_task(
    agent: str, lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    models.play(task_script(agent))
    done = lab.run(agent, "Mend add", project, "--yes", *task_words(agent))
    assert done.code == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert (project / "calc.py").read_text() == RIGHT
    assert DONE in done.stdout or agent == "aider", done.stdout

    # The model saw what really happened in the sandbox.
    talks = [asked.conversation for asked in models.work() if asked.conversation]
    seen = "\n".join(text for talk in talks for text in [*talk.results, *talk.prompts])
    assert "return a - b" in seen and "AssertionError: 6" in seen
    assert "all good" in seen or agent == "aider"

    # The key came to its host, as it is, and was nobody's else.
    assert set(by_key(models.work())) == {KEYS[KEY_OF[agent]]}
    assert {asked.host for asked in models.work()} == {HOST_OF[agent]}
    assert {asked.sni for asked in models.work()} == {HOST_OF[agent]}

    summary = done.summary
    assert "calc.py" in summary["changed"]
    assert HOST_OF[agent] in {host["host"] for host in summary["hosts"]}
    assert FORBIDDEN in {host["host"] for host in summary["denied"]}
    assert FORBIDDEN in done.stderr and FORBIDDEN not in models.refused
    if agent != "aider":  # which tells nobody what it runs
        assert summary["commands"].count(TRY) == 2, summary["commands"]


def test_what_is_not_applied_stays_outside_until_it_is(
    lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    models.play(task_script("claude"))
    done = lab.run("claude", "Mend add", project, "--json")
    assert done.code == 0, done.stderr[-3000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["type"] == "result" and events[-1]["result"] == DONE
    assert (project / "calc.py").read_text() == WRONG

    diff = lab.cli("agent", "diff", done.session, cwd=project)
    assert diff.returncode == 0, diff.stderr
    patch = "\n".join(line for line in diff.stdout.splitlines() if line[:1] in "+-")
    assert "-    return a - b" in patch and "+    return a + b" in patch
    applied = lab.cli("agent", "apply", done.session, cwd=project)
    assert applied.returncode == 0, applied.stderr
    assert (project / "calc.py").read_text() == RIGHT
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True
    )
    assert status.stdout == " M calc.py\n"
