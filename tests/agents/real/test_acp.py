"""Real agents through `agentkernel acp`, driven by the official client, as an editor does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acp import text_block

from ...acp.editors import Editor, bridge, until
from ..scripted import ScriptedModels
from .lab import DONE, HOST_OF, KEY_OF, KEYS, RIGHT, Lab, make_project, task_script

pytestmark = pytest.mark.anyio
ASKING = ("claude", "gemini")
"""Those that ask for leave before they change a file or run a command."""
LOADING = ("claude", "codex", "opencode")
"""Gemini CLI loads sessions, too, but not in the minute in which they began: it names the file by
that, and begins a new one over it."""
OPENCODE_MODEL = "anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
async def test_an_editor_has_the_task_done(
    lab: Lab, models: ScriptedModels, tmp_path: Path, agent: str
) -> None:
    models.play(task_script(agent))
    project = make_project(tmp_path / "project")

    def choose(call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        """As a user who allows everything, each time."""
        return next((one["optionId"] for one in options if one["kind"] == "allow_once"), None)

    editor = Editor(choose_of=choose)
    async with bridge(
        editor, lab.state_dir, agent, cwd=project, environment=lab.environment()
    ) as connection:
        assert connection.hello.agent_capabilities.load_session
        session = await connection.agent.new_session(cwd=str(project), mcp_servers=[])
        if agent == "opencode":
            # It has several keys, and takes the newest model of all providers unless told.
            await connection.agent.set_config_option(
                session_id=session.session_id, config_id="model", value=OPENCODE_MODEL
            )
        result = await connection.agent.prompt(
            session_id=session.session_id, prompt=[text_block("Make the test pass.")]
        )
        assert result.stop_reason == "end_turn"
    assert DONE in "".join(editor.said(session.session_id))
    assert editor.host_calls == []
    *asked, apply = editor.questions
    assert apply["title"] == f"Apply 1 file to {project}"
    assert bool(asked) == (agent in ASKING)
    assert (project / "calc.py").read_text() == RIGHT
    # The key was put in outside: the model got it, and the agent's sandbox never had it.
    work = models.work()
    assert work and {one.key for one in work} == {KEYS[KEY_OF[agent]]}
    assert {one.host for one in work} == {HOST_OF[agent]}
    assert KEYS[KEY_OF[agent]] not in json.dumps([update for _, update in editor.updates])

    if agent not in LOADING:
        return
    again = Editor()
    async with bridge(
        again, lab.state_dir, agent, cwd=project, environment=lab.environment()
    ) as connection:
        await connection.agent.load_session(
            cwd=str(project), session_id=session.session_id, mcp_servers=[]
        )
        await until(lambda: DONE in "".join(again.said(session.session_id)))
