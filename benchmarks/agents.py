"""How long an agent takes for a task in a session, compared with the same program without one.

    python benchmarks/agents.py [--rounds N] [--report FILE]

The real programs do the task of the tests (read, edit, a failing test, edit, test) against scripted
models, which answer at once: what is left is the program's own time and ours. In turns: bare on
this machine, in `bwrap` with nothing but a read-only root, and by `agentkernel agent run --rm`,
which makes a sandbox, records, summarizes and removes it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import facts

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentkernel.agents.commands import Fill, command_line, environment, path_entries
from agentkernel.agents.reading import BUILT_IN, Definitions
from tests.agents.real.lab import KEY_OF, KEYS, WRONG, Lab, make_project, turns
from tests.agents.scripted import Script, ScriptedModels

_BASE_URL = {"claude": "ANTHROPIC_BASE_URL"}
_SECONDS = 120


def bare(agent: str, kit: Path, models: ScriptedModels, project: Path, wrap: list[str]) -> None:
    """The program itself, with a home of its own."""
    definition = Definitions(BUILT_IN).get(agent)
    with tempfile.TemporaryDirectory() as home:
        task_file = Path(home, "task")
        task_file.write_text("fix the sum")
        fill = Fill(
            kit=str(kit),
            version=definition.version,
            home=home,
            workspace=str(project),
            task="fix the sum",
            task_file=str(task_file),
            context=f"{home}/context.md",
        )
        variables = {
            **os.environ,
            **environment(definition, fill),
            "HOME": home,
            "PATH": ":".join([*path_entries(definition, fill), os.environ["PATH"]]),
            _BASE_URL[agent]: models.url,
            KEY_OF[agent]: KEYS[KEY_OF[agent]],
        }
        subprocess.run(
            [*wrap, *command_line(definition, "headless", fill)],
            cwd=project,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )


def walled(project: Path) -> list[str]:
    """What a user would write around it: everything read-only but the project and /tmp."""
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    return [*words, "--bind", "/tmp", "/tmp", "--bind", str(project), str(project), "--unshare-pid"]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def kit_of(lab: Lab, agent: str) -> Path:
    """Where its files are on this machine."""
    for place in (lab.state_dir / "volumes").iterdir():
        found = place / "data"
        if any(found.glob(f"bin/{agent}")):
            return found
    raise SystemExit(f"the kit of {agent} is not found")


def measure(rounds: int) -> list[str]:
    rows: list[str] = []
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get("AGENT_TESTS_PLACE") or cache / "agentkernel-tests" / "agents")
    with tempfile.TemporaryDirectory(prefix="agentkernel-agents-") as scratch:
        models = ScriptedModels(Path(scratch))
        place.mkdir(parents=True, exist_ok=True)
        lab = Lab(place, models)
        lab.start()
        try:
            models.forward = lambda host: True
            if wrong := lab.install():
                raise SystemExit(wrong)
            models.forward = lambda host: False
            lab.set_keys()
            models.play(Script(turns()))
            rows += [row(lab, models, agent, Path(scratch), rounds) for agent in _BASE_URL]
        finally:
            lab.remove_all()
            lab.terminate()
            lab.close()
            models.close()
    return rows


def row(lab: Lab, models: ScriptedModels, agent: str, scratch: Path, rounds: int) -> str:
    project = make_project(scratch / agent)
    kit = kit_of(lab, agent)

    def ours() -> None:
        done = lab.run(agent, "fix the sum", project, "--rm")
        assert done.code == 0, done.stderr

    def theirs(wrap: list[str]) -> Callable[[], None]:
        def work() -> None:
            (project / "calc.py").write_text(WRONG)
            bare(agent, kit, models, project, wrap)
            (project / "calc.py").write_text(WRONG)

        return work

    ways = [theirs([])]
    if shutil.which("bwrap"):
        ways.append(theirs(walled(project)))
    ways.append(ours)
    for way in ways:
        way()  # what the first has to make
    medians = [
        statistics.median(column)
        for column in zip(*([timed(way) for way in ways] for _ in range(rounds)), strict=True)
    ]
    first, last = medians[0], medians[-1]
    walls = f"{medians[1]:.2f} s" if len(medians) == 3 else "not here"
    return f"| {agent} | {first:.2f} s | {walls} | {last:.2f} s | {last / first:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--report", metavar="FILE")
    options = parser.parse_args()
    head = ("| | bare | bwrap | agent run | times bare |", "|---|---:|---:|---:|---:|")
    text = "\n".join((*head, *measure(options.rounds)))
    print(text)
    if options.report:
        about = facts()
        where = (
            f"{about['date']}, commit {about['commit'][:12]}, {about['cpu']}, {about['cores']} "
            f"cores, {about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}, "
            f"{about['user']}, load before {about['load']}."
        )
        Path(options.report).write_text(
            "# Agents\n\nWritten by `benchmarks/agents.py --report FILE`: a task of five tool "
            f"calls against scripted models, median of {options.rounds}, in turns."
            f"\n\n{where}\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
