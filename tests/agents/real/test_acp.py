"""Three agents by the official client of the Agent Client Protocol, through `agentkernel acp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from ...acp.editors import Editor, bridge
from ..scripted import Script, ScriptedModels, by_key
from .lab import DONE, HOST_OF, KEY_OF, KEYS, RIGHT, Lab, make_project, turns

pytestmark = pytest.mark.anyio
MODEL = "anthropic/claude-sonnet-4-5"
ASKING = ("claude", "gemini")
"""OpenCode asks for no permission unless its settings say so."""


class Willing(Editor):
    """Allows what it is asked for, once each."""

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **kwargs: Any
    ) -> schema.RequestPermissionResponse:
        self.questions.append(tool_call.model_dump(by_alias=True, exclude_none=True))
        [chosen, *_] = [option for option in options if option.kind == "allow_once"]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)


@pytest.mark.parametrize("agent", ["claude", "gemini", "opencode"])
async def test_an_editor_has_an_agent_do_a_task(
    agent: str, lab: Lab, models: ScriptedModels, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project")
    models.play(Script(turns()))
    editor = Willing()
    state, environment = lab.state_dir, lab.environment()
    async with bridge(editor, state, agent, cwd=project, environment=environment) as editing:
        session = await editing.agent.new_session(cwd=str(project), mcp_servers=[])
        if agent == "opencode":  # it has keys of several providers, and would take any of them
            [chosen] = [option for option in session.config_options if option.id == "model"]
            await editing.agent.set_config_option(
                config_id=chosen.id, session_id=session.session_id, value=MODEL
            )
        task = [acp.text_block("Mend add")]
        answer = await editing.agent.prompt(session_id=session.session_id, prompt=task)
        assert answer.stop_reason == "end_turn"
        assert DONE in "".join(editor.said(session.session_id))
    # One question is ours: whether the changes should come into the project.
    of_agent = [question for question in editor.questions if "calc.py" in str(question)]
    assert len(editor.questions) > 1 or agent not in ASKING, editor.questions
    assert of_agent, editor.questions
    assert (project / "calc.py").read_text() == RIGHT
    assert not editor.host_calls  # files and commands are the sandbox's
    assert {asked.host for asked in models.work()} == {HOST_OF[agent]}
    assert set(by_key(models.work())) == {KEYS[KEY_OF[agent]]}
    results = [talk.results for asked in models.work() if (talk := asked.conversation)]
    assert "all good" in max(results, key=len)[-1]
