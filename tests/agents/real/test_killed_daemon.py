"""`kill -9` of the daemon during a session: the agent goes on, and one can come back to it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ...server.daemon_process import eventually
from ..scripted import Edit, Read, Run, Say, Script, ScriptedModels
from .lab import DONE, RIGHT, RUN_SECONDS, TRY, Lab, make_project


def test_an_agent_outlives_the_daemon(lab: Lab, models: ScriptedModels, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    models.play(
        Script(
            [
                Read("calc.py"),
                Run("echo without-a-daemon", gate="killed"),
                Edit("calc.py", "    return a - b", "    return a + b", gate="back"),
                Run(TRY),
                Say(DONE),
            ]
        )
    )

    def results() -> list[str]:
        talks = [asked.conversation for asked in models.work()]
        return max((talk.results for talk in talks if talk), key=len, default=[])

    started = subprocess.Popen(
        [*lab.command, "agent", "run", "claude", "Mend add"],
        cwd=project,
        env=lab.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: len(results()) == 1, 60)
    finally:
        started.kill()  # else it would start another daemon, and go on
        started.communicate(timeout=RUN_SECONDS)
    lab.kill()

    models.open("killed")
    eventually(lambda: len(results()) == 2, 60)
    assert not lab.alive() and "without-a-daemon" in results()[1]

    lab.start()
    [session] = json.loads(lab.cli("agent", "sessions", "--running", "--json").stdout)["sessions"]
    back = subprocess.Popen(
        [*lab.command, "agent", "attach", session["id"]],
        cwd=project,
        env=lab.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    models.open("back")
    shown, said = back.communicate(timeout=RUN_SECONDS)
    assert back.returncode == 0, said
    assert DONE in shown, (shown, said)
    assert "all good" in results()[-1]

    applied = lab.cli("agent", "apply", session["id"], cwd=project)
    assert applied.returncode == 0, applied.stderr
    assert (project / "calc.py").read_text() == RIGHT
