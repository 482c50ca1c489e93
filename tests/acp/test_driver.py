"""The daemon as an agent's client: turns, questions, calls, and what a killed daemon leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.errors import ConflictError, InvalidInputError, NotFoundError
from agentkernel.guest.processes import AttachedProcess
from agentkernel.kernel.agents.model import AgentEvent, AgentRequest, AgentSession
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.shared_jobs import KEEP
from agentkernel.kernel.spec import SandboxSpec

pytestmark = pytest.mark.anyio
DEADLINE_S = 30.0
COMMAND = ["python3", "/workspace/fake_agent.py"]


@pytest.fixture
def own_state(state_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """A state of the test's own that shares the images. What a test left running is ended."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    yield path
    for left in (path / "sandboxes").glob("*"):
        if pid := SandboxDirectory(left).process():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def kernel(own_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(own_state) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def begin(kernel: Kernel, project: Path, **fields: Any) -> AgentSession:
    return await kernel.agents.sessions.start(
        AgentRequest(
            agent="fake",
            mode="acp",
            command=COMMAND,
            spec=SandboxSpec(workspace=str(project)),
            **fields,
        )
    )


async def follow(kernel: Kernel, id: str, *, after: int = 0) -> AsyncIterator[AgentEvent]:
    async with asyncio.timeout(DEADLINE_S):
        async for event in kernel.agents.sessions.events(id, after=after):
            yield event


async def until_turn_ends(kernel: Kernel, id: str, after: int = 0) -> list[AgentEvent]:
    found = []
    async for event in follow(kernel, id, after=after):
        found.append(event)
        if event.kind == "prompt" and "text" not in event.body:
            return found
    raise AssertionError("the session ended before its turn")


def said(events: list[AgentEvent]) -> list[str]:
    return [
        event.body["update"]["content"]["text"]
        for event in events
        if event.kind == "agent" and event.body["update"]["sessionUpdate"] == "agent_message_chunk"
    ]


async def test_turns(kernel: Kernel, project: Path) -> None:
    session = await begin(kernel, project)
    assert session.conversation is not None and not session.busy
    lines = ["say hello", "ask may I?", "read /workspace/notes.txt", "run echo $((6*7)); exit 3"]
    await kernel.agents.sessions.prompt(session.id, "\n".join(lines))
    events = await until_turn_ends(kernel, session.id)
    assert events[-1].body["stop_reason"] == "end_turn"
    hello, answer, read, ran = said(events)
    assert hello == "hello" and "one" in read
    assert '"yes"' in answer  # nobody attends: the sandbox guards
    assert "42" in ran and '"exitCode": 3' in ran
    asked, allowed = [event.body for event in events if event.kind == "permission"]
    assert asked["request"]["toolCall"]["title"] == "may I?"
    assert allowed["answer"] == {"outcome": "selected", "optionId": "yes"}
    after = events[-1].seq
    await kernel.agents.sessions.prompt(session.id, "wait /nowhere")
    with pytest.raises(ConflictError, match="working on a prompt"):
        await kernel.agents.sessions.prompt(session.id, "say no")
    assert (await kernel.agents.sessions.get(session.id)).busy
    await kernel.agents.sessions.cancel(session.id)
    events = await until_turn_ends(kernel, session.id, after)
    assert events[-1].body["stop_reason"] == "cancelled"
    after = events[-1].seq
    await kernel.agents.sessions.prompt(session.id, "garbage\nsay still here")
    events = await until_turn_ends(kernel, session.id, after)
    assert said(events) == ["still here"]


async def test_a_person_attends(kernel: Kernel, project: Path) -> None:
    session = await begin(kernel, project, attended=True)
    sessions = kernel.agents.sessions
    await sessions.prompt(session.id, "ask one\nask two\nask three")
    answers = iter(["yes", None, "cancel"])
    async for event in follow(kernel, session.id):
        if event.kind == "permission" and "request" in event.body:
            id, answer = event.body["id"], next(answers)
            if answer == "cancel":
                await sessions.cancel(session.id)
                continue
            with pytest.raises(InvalidInputError, match="no option"):
                await sessions.answer(session.id, id, "maybe")
            await sessions.answer(session.id, id, answer)
            with pytest.raises(NotFoundError):
                await sessions.answer(session.id, id, answer)
        if event.kind == "prompt" and "text" not in event.body:
            assert event.body["stop_reason"] == "cancelled"
            break
    events = [event async for event in sessions.events(session.id, follow=False)]
    first, second, third = said(events)
    assert '"yes"' in first and "cancelled" in second and "cancelled" in third


async def test_a_conversation_is_gone_on_with(kernel: Kernel, project: Path) -> None:
    session = await begin(kernel, project, task="say remember")
    await until_turn_ends(kernel, session.id)
    await kernel.agents.sessions.stop(session.id)
    again = await kernel.agents.sessions.start(
        AgentRequest(agent="fake", mode="acp", command=COMMAND, resume=session.id, task="say again")
    )
    assert again.conversation == session.conversation and again.sandbox == session.sandbox
    # What was said before is in the first one's log, and not told again.
    assert said(await until_turn_ends(kernel, again.id)) == ["again"]


async def test_an_agent_that_is_none(kernel: Kernel, project: Path) -> None:
    """One that ends, and one that says nonsense: told, and nothing is left."""
    for words in (["python3", "-c", "print('hello')"], ["/nowhere/agent"]):
        with pytest.raises(Exception) as failure:
            await kernel.agents.sessions.start(
                AgentRequest(agent="none", mode="acp", command=words, spec=SandboxSpec())
            )
        assert "agent" in str(failure.value) or "can't be started" in str(failure.value)
    assert (await kernel.list()).records == []
    assert (await kernel.agents.sessions.list()).sessions == []


async def test_a_daemon_that_is_gone_in_a_turn(own_state: Path, project: Path) -> None:
    """The agent waits for a terminal, then for a person: the next daemon answers both, and tells
    how the turn ended."""
    async with Kernel(own_state) as kernel:
        session = await begin(kernel, project, attended=True)
        lines = ["say one", "run while ! test -e /tmp/go; do sleep 0.05; done; echo over",
                 "ask go on?", "say two"]  # fmt: skip
        await kernel.agents.sessions.prompt(session.id, "\n".join(lines))
        async for event in follow(kernel, session.id):
            if event.kind == "agent" and event.body["update"].get("toolCallId") == "t-run":
                break
    async with Kernel(own_state) as kernel:
        assert (await kernel.agents.sessions.get(session.id)).busy
        async with kernel.files(session.sandbox) as files:
            await files.write("/tmp/go", b"")
        async for event in follow(kernel, session.id):
            if event.kind == "permission":
                break
    async with Kernel(own_state) as kernel:
        await kernel.agents.sessions.answer(session.id, event.body["id"], "no")
        events = await until_turn_ends(kernel, session.id)
        assert events[-1].body["stop_reason"] == "end_turn"
        one, ran, answer, two = said(events)
        assert (one, two) == ("one", "two")
        assert "over" in ran and '"no"' in answer
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        after = events[-1].seq
        await kernel.agents.sessions.prompt(session.id, "say three")
        assert said(await until_turn_ends(kernel, session.id, after)) == ["three"]
        await kernel.remove(session.sandbox)


async def test_one_who_must_miss_nothing(kernel: Kernel) -> None:
    """Two listen to a job that writes more than is kept for them; the slow one has all of it if it
    asked for that, and misses some if not."""
    size = 3 * KEEP
    box = await kernel.create(SandboxSpec())

    async def listen(*, whole: bool) -> tuple[int, bool]:
        job = await kernel.jobs.start(box.id, ["head", "-c", str(size), "/dev/zero"])
        async with (
            kernel.jobs.attach(job.id, shared=True, whole=True) as fast,
            kernel.jobs.attach(job.id, shared=True, whole=whole) as slow,
        ):
            reading = asyncio.ensure_future(_drain(fast))
            if not whole:
                await asyncio.wait((reading,))  # it begins when the other has all of it
            got = await _drain(slow)
            assert await reading == (size, True)
        return got

    assert await listen(whole=True) == (size, True)
    got, complete = await listen(whole=False)
    assert got < size and not complete


async def _drain(process: AttachedProcess) -> tuple[int, bool]:
    """How much came, and whether nothing was left out."""
    got, complete = 0, True
    while (chunk := await process.output()) is not None:
        complete = complete and chunk.offset == got
        got += len(chunk.data)
        await asyncio.sleep(0)
    return got, complete
