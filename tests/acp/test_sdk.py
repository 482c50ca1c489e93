"""`sandbox.agent()`: an agent in a sandbox that a program prompts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import AsyncSandbox, Sandbox
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import ConflictError, InvalidInputError

pytestmark = pytest.mark.anyio
COMMAND = ["python3", "/workspace/fake_agent.py"]


@pytest.fixture
def sandbox(acp_state: Path, project: Path) -> Iterator[Sandbox]:
    transport = Transport(str(acp_state))
    with Sandbox.create(workspace=f"{project}:cow", transport=transport) as sandbox:
        yield sandbox
    transport.close()


def test_turns(sandbox: Sandbox) -> None:
    with sandbox.agent(command=COMMAND) as agent:
        turn = agent.prompt("say hello \nsay world\nask may I?")
        assert turn.text.startswith("hello world") and '"yes"' in turn.text
        assert turn.stop_reason == "end_turn" and turn.raw == {"stopReason": "end_turn"}
        assert turn.usage["turns"] == 1
        kinds = [update["sessionUpdate"] for update in agent.stream("edit a.txt\nsay done")]
        assert kinds == ["tool_call", "agent_message_chunk"]
        assert agent.session is not None
        conversation = agent.session.refresh()["conversation"]
    assert agent.session.refresh()["state"] == "ended"
    again = sandbox.agent(command=COMMAND, resume=agent.session.id)
    assert again.prompt("read /workspace/a.txt").text.count("edited") == 1
    assert again.session is not None and again.session.info["conversation"] == conversation
    again.close()


def test_what_can_not_be(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidInputError, match="either a name or a command"):
        sandbox.agent()
    with pytest.raises(ConflictError, match="can't be started"):
        sandbox.agent(command=["/nowhere"]).prompt("hello")
    stream = sandbox.agent(command=COMMAND).stream("say hello")
    with pytest.raises(InvalidInputError, match="has not ended"):
        _ = stream.result


async def test_permissions_and_cancel(acp_state: Path, project: Path) -> None:
    asked: list[dict[str, Any]] = []

    def choose(question: dict[str, Any]) -> str | None:
        asked.append(question)
        return "no" if len(asked) == 1 else None

    transport = AsyncTransport(str(acp_state))
    async with (
        await AsyncSandbox.create(workspace=f"{project}:cow", transport=transport) as sandbox,
        sandbox.agent(command=COMMAND, on_permission=choose) as agent,
    ):
        turn = await agent.prompt("ask one\nask two")
        assert '"no"' in turn.text and "cancelled" in turn.text
        assert [question["toolCall"]["title"] for question in asked] == ["one", "two"]
        stream = agent.stream("say begun\nwait /nowhere")
        async for update in stream:
            assert update["content"]["text"] == "begun"
            with pytest.raises(ConflictError, match="working on a prompt"):
                await agent.prompt("say no")
            await agent.cancel()
        assert stream.result.stop_reason == "cancelled"
        both = await asyncio.gather(agent.start(), agent.start())
        assert both[0] is both[1]
    transport.close()


def daemon_pid(state: Path) -> int:
    pid: int = json.loads((state / "daemon.json").read_text())["pid"]
    return pid


async def test_a_turn_outlives_the_daemon(acp_state: Path, project: Path) -> None:
    """Killed while the agent works and the program waits: both go on with the next one."""
    transport = AsyncTransport(str(acp_state))
    sandbox = await AsyncSandbox.create(kept=True, workspace=f"{project}:cow", transport=transport)
    agent = sandbox.agent(command=COMMAND)
    stream = agent.stream("say one\nwait /tmp/go\nread /workspace/notes.txt\nsay two")
    seen = []
    async for update in stream:
        seen.append(update["content"]["text"])
        if seen == ["one"]:
            pid = daemon_pid(acp_state)
            os.kill(pid, signal.SIGKILL)
            await sandbox.files.write("/tmp/go", "")
    assert stream.result.stop_reason == "end_turn"
    assert len(seen) == 3 and "one" in seen[1] and seen[2] == "two"
    assert daemon_pid(acp_state) != pid
    await agent.close()
    await sandbox.remove()
    transport.close()
