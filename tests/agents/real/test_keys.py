"""Two boxes with two keys: each arrives at the model for its own box, and neither is inside."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from ...server.daemon_process import eventually
from ..scripted import Run, Say, Script, ScriptedModels, Write, by_key
from .lab import KEYS, Finished, Lab, make_project

FIRST = KEYS["ANTHROPIC_API_KEY"]
SECOND = "sk-ant-api03-TheSecondKeyOfSomebodyElse9876543210zyxwvutsrqpon"
NOTE = "what-everybody-inside-may-know"
_INSIDE = (Path(__file__).parent / "inside.py").read_text()


def test_two_boxes_have_two_keys_and_know_neither(
    lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    assert lab.cli("secret", "set", "SECOND_KEY", stdin=SECOND).returncode == 0
    models.keys = {FIRST, SECOND}
    models.play(
        Script([Write("first.txt", "1"), Run("env", gate="look"), Say("First.")], key=FIRST),
        Script([Write("second.txt", "2"), Run("env", gate="look"), Say("Second.")], key=SECOND),
    )
    bound = {"one": (), "two": ("--secret", "ANTHROPIC_API_KEY=SECOND_KEY@anthropic")}
    done: dict[str, Finished] = {}

    def work(name: str) -> None:
        words = ["--name", name, "--keep", "-e", f"NOTE={NOTE}", *bound[name]]
        done[name] = lab.run("claude", "Write a file", project, *words)

    def waiting() -> bool:
        """Both have written their file and wait for what is next."""
        seen = {a.key for a in models.work() if a.conversation and a.conversation.results}
        return seen == {FIRST, SECOND}

    threads = [threading.Thread(target=work, args=(name,)) for name in bound]
    try:
        for thread in threads:
            thread.start()
        eventually(waiting, 90)
        looks = {name: _look(lab, name, NOTE, FIRST, SECOND) for name in bound}
    finally:
        models.open("look")
        for thread in threads:
            thread.join()
        models.keys = set()

    assert [done[name].code for name in bound] == [0, 0], [d.stderr[-2000:] for d in done.values()]
    placeholders = []
    for look in looks.values():
        note, first, second = look["found"].values()
        assert note, "the search finds nothing at all"
        assert not first and not second, (first, second)
        assert look["looked"]["files"] > 10 and look["looked"]["processes"] > 4, look["looked"]
        placeholders += look["values"]
    # Each has a placeholder of its own in place of the key.
    assert len(set(placeholders)) == 2 and not {FIRST, SECOND} & set(placeholders)
    assert "First." in done["one"].stdout and "Second." in done["two"].stdout
    assert done["one"].summary["changed"] == ["first.txt"]
    assert done["two"].summary["changed"] == ["second.txt"]
    # What the programs printed of their environment went to the model as placeholders, too.
    for asked in models.work():
        assert FIRST.encode() not in asked.body and SECOND.encode() not in asked.body
    assert set(by_key(models.work())) == {FIRST, SECOND}


def _look(lab: Lab, sandbox: str, *words: str) -> dict[str, Any]:
    argv = ["python3", "-I", "-c", _INSIDE, "ANTHROPIC_API_KEY"]
    argv += [word.encode().hex() for word in words]
    status, answer = lab.request("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": argv})
    assert status == 200, answer
    assert answer["exit_code"] == 0, answer
    found: dict[str, Any] = json.loads(answer["stdout"])
    return found
