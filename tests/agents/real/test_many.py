"""Five agents at once on one repository: apart from each other, and all applied."""

from __future__ import annotations

import threading
from pathlib import Path

from ..scripted import Edit, Read, Run, Say, Script, ScriptedModels, Turn, Write
from ..scripted.tools import block
from .lab import AGENTS, Finished, Lab, make_project

SHARED = "first\nthe line that everybody wants\nlast\n"


def _turns(agent: str) -> list[Turn]:
    wanted, mine = "the line that everybody wants", f"the line of {agent}"
    if agent == "aider":  # all of it in one answer, after which it ends
        own = block(f"{agent}.txt", "", f"by {agent}")
        return [Say(own + block("shared.txt", wanted, mine))]
    return [
        Read("shared.txt"),
        Write(f"{agent}.txt", f"by {agent}\n"),
        Edit("shared.txt", wanted, mine),
        Run("ls"),
        Say(f"{agent} is done."),
    ]


def test_five_agents_at_once(lab: Lab, models: ScriptedModels, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", **{"shared.txt": SHARED})
    models.play(*(Script(_turns(agent), when=f"Task of {agent}") for agent in AGENTS))
    done: dict[str, Finished] = {}

    def work(agent: str) -> None:
        done[agent] = lab.run(agent, f"Task of {agent}: shared.txt", project, "--keep")

    threads = [threading.Thread(target=work, args=(agent,)) for agent in AGENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {agent: done[agent].code for agent in AGENTS} == dict.fromkeys(AGENTS, 0), {
        agent: done[agent].stderr[-1500:] for agent in AGENTS
    }

    # The project is as it was, and nobody saw what others did.
    assert (project / "shared.txt").read_text() == SHARED
    for agent in AGENTS:
        assert {f"{agent}.txt", "shared.txt"} <= set(done[agent].summary["changed"])
        assert not (project / f"{agent}.txt").exists()
    for asked in models.work():
        assert asked.conversation is not None
        text = "\n".join(asked.conversation.results)
        assert sum(f"{agent}.txt" in text for agent in AGENTS) <= 1, text

    # All are applied: what is only one's comes, of what all changed the first one's.
    applied = {agent: lab.cli("agent", "apply", done[agent].session) for agent in AGENTS}
    first, *others = AGENTS
    assert applied[first].returncode == 0, applied[first].stderr
    assert f"the line of {first}" in (project / "shared.txt").read_text()
    for agent in AGENTS:
        assert (project / f"{agent}.txt").read_text() == f"by {agent}\n"
    for agent in others:
        shown = applied[agent].stdout + applied[agent].stderr
        assert applied[agent].returncode == 1 and "shared.txt" in shown, shown
        # Nothing of it is lost: it can be seen, and had later.
        diff = lab.cli("agent", "diff", done[agent].session)
        assert f"+the line of {agent}" in diff.stdout, (diff.stdout, diff.stderr)
