"""The real agents, installed, with scripted models for a world: a daemon, its commands, projects.

The state directory outlives the tests, so that agents are installed once and again only when their
definitions change: `AGENT_TESTS_PLACE`, or a directory of the user's cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkernel.ids import new_id

from ...server.daemon_process import Daemon
from ..scripted import Edit, Read, Run, Say, Script, ScriptedModels, Turn

AGENTS = ("claude", "codex", "gemini", "opencode", "aider")
KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-api03-TheRealKeyOfAnthropic0123456789abcdefghijklmnop",
    "OPENAI_API_KEY": "sk-proj-TheRealKeyOfOpenAI0123456789abcdefghijklmnopqrst",
    "GEMINI_API_KEY": "AIzaTheRealKeyOfGoogle0123456789abcdefgh",
}
KEY_OF = {
    "claude": "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "opencode": "ANTHROPIC_API_KEY",
    "aider": "ANTHROPIC_API_KEY",
}
HOST_OF = {
    "claude": "api.anthropic.com",
    "codex": "api.openai.com",
    "gemini": "generativelanguage.googleapis.com",
    "opencode": "api.anthropic.com",
    "aider": "api.anthropic.com",
}
FORBIDDEN = "forbidden.example"
INSTALL_SECONDS = 900
RUN_SECONDS = 150

# What the scripted task is: `add` is wrong, and is still after the first try.
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\nassert add(2, 3) == 5, add(2, 3)\nprint('all good')\n"
# No compiled file may be taken for the one that was changed within the same second.
TRY = "python3 -B test_calc.py"
REACH = f"curl -sS -m 10 https://{FORBIDDEN}/ 2>&1; true"
DONE = "The sum is right now, and the test passes."


def turns(*first: Turn) -> list[Turn]:
    return [
        *first,
        Read("calc.py"),
        Edit("calc.py", "    return a - b", "    return a * b"),
        Run(TRY),
        Edit("calc.py", "    return a * b", "    return a + b"),
        Run(TRY),
        Say(DONE),
    ]


@dataclass(frozen=True)
class Finished:
    """A command that has ended. `summary`: what `agent run --summary` wrote."""

    code: int
    stdout: str
    stderr: str
    summary: dict[str, Any]

    @property
    def session(self) -> str:
        id: str = self.summary["session"]["id"]
        return id


class Lab(Daemon):
    """A daemon whose sandboxes find scripted models where the real ones are."""

    def __init__(self, place: Path, models: ScriptedModels) -> None:
        self.place = place
        self.config_home = place / "config"
        self.models = models
        models.configure(self.config_home)
        state = place / "state"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(state)
        self._stop_one_of_before()

    def environment(self, **more: str) -> dict[str, str]:
        names = {"http_proxy", "https_proxy", "all_proxy"}  # the models are in the way out
        kept = {key: value for key, value in os.environ.items() if key.lower() not in names}
        return {
            **kept,
            "AGENTKERNEL_STATE_DIR": str(self.state_dir),
            "XDG_CONFIG_HOME": str(self.config_home),
            **more,
        }

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [*self.command, "serve", "--foreground", *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "agentkernel"]

    def _stop_one_of_before(self) -> None:
        """Tests that were killed leave a daemon and sandboxes behind."""
        if (self.state_dir / "state.db").exists():
            self.cli("sandbox", "gc", "--older-than", "1ms")
            self.cli("daemon", "stop")
        # Its key was in a configuration that is gone.
        (self.state_dir / "secrets.enc").unlink(missing_ok=True)
        self._log.write_text("")

    # -- commands -------------------------------------------------------------------------------

    def cli(
        self, *words: str, cwd: Path | None = None, stdin: str = "", seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *words],
            cwd=cwd or self.place,
            input=stdin,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def run(self, agent: str, task: str, project: Path, *options: str) -> Finished:
        """`agentkernel agent run`, to its end."""
        # Its own: two runs of one agent may be under way.
        file = project.parent / f"{project.name}-{new_id()}.json"
        named = ["--summary", str(file), *options]
        done = self.cli("agent", "run", agent, *_before_words(named, task), cwd=project)
        summary = json.loads(file.read_text()) if file.exists() else {}
        return Finished(done.returncode, done.stdout, done.stderr, summary)

    def install(self) -> str:
        """Installs all agents, side by side. What was wrong, in words; "": all are there."""
        wrong: dict[str, str] = {}

        def install(agent: str) -> None:
            done = self.cli("agent", "install", agent, seconds=INSTALL_SECONDS)
            if done.returncode:
                wrong[agent] = done.stderr[-1000:]

        threads = [threading.Thread(target=install, args=(agent,)) for agent in AGENTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "\n".join(f"{agent}: {words}" for agent, words in sorted(wrong.items()))

    def set_keys(self) -> None:
        for name, value in KEYS.items():
            done = self.cli("secret", "set", name, stdin=value)
            assert done.returncode == 0, done.stderr


def _before_words(options: Sequence[str], task: str) -> list[str]:
    """Options, the task, and behind `--` what is the agent's."""
    words = list(options)
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], task, *words[at:]]


def make_project(place: Path, **files: str) -> Path:
    """A git repository with the task in it, and with other files."""
    place.mkdir()
    contents = {"calc.py": WRONG, "test_calc.py": TEST, **files}
    for name, content in contents.items():
        (place / name).write_text(content)
    for words in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "--quiet", "-m", "begin"],
    ):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=30)
    return place


def task_words(agent: str) -> list[str]:
    """Words of the agent's own that its task needs: one without tools is told how to test."""
    return ["--", "--auto-test", "--test-cmd", f"{REACH}; {TRY}"] if agent == "aider" else []


def task_script(agent: str, **options: Any) -> Script:
    """The whole task, with a try to reach what is forbidden; one without tools tests by itself."""
    if agent == "aider":
        return Script([turn for turn in turns() if not isinstance(turn, Run)], **options)
    return Script(turns(Run(REACH)), **options)
