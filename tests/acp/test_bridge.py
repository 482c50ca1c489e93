"""An editor drives an agent in a sandbox by the official client: what comes through, what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from acp import text_block

from .editors import Editor, bridge

pytestmark = pytest.mark.anyio


def words(guest: str, *more: str) -> tuple[str, ...]:
    return ("fake", "--at", guest, *more, "--", "python3", f"{guest}/fake_agent.py")


async def test_a_turn(acp_state: Path, project: Path) -> None:
    editor = Editor(choose=lambda call: "yes" if call["toolCallId"] == "t-ask" else None)
    async with bridge(editor, acp_state, *words("/workspace"), cwd=project) as connection:
        agent = connection.agent
        assert connection.hello.agent_capabilities.load_session
        session = (await agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        text = f"say hello\nask may I?\nread /workspace/notes.txt\nrun echo $((6*7)); false\nedit notes.txt"
        result = await agent.prompt([text_block(text)], session)
        assert result.stop_reason == "end_turn"
    assert editor.said(session) == []
