"""Sessions of agents: started, followed, summed up, gone on with, taken back."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import msgspec
import pytest

from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    NotReadyError,
    ResourceExhaustedError,
    UnsupportedError,
)
from agentkernel.kernel.agents import sessions
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.workspaces.model import file_clock_ns

from .conftest import DEADLINE_S, events, start, until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a.txt").write_text("one\n")
    while file_clock_ns() <= (path / "a.txt").stat().st_ctime_ns:
        time.sleep(0.001)  # older than what comes, by the clock of files, which ticks seldom
    return path


def working_on(project: Path) -> SandboxSpec:
    return SandboxSpec(workspace=str(project))


async def test_a_headless_session(kernel: Kernel, project: Path) -> None:
    task = "run echo hello\nwrite a.txt two\nwrite .envrc evil\nprint plain\ncomplain oh\nexit 3"
    session = await start(kernel, task, spec=working_on(project), env={"TOKEN": "v4lue"})
    assert (session.state, session.agent, session.version) == ("running", "fake", "1.0")
    assert session.project == str(project)
    log = await events(kernel, session.id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert log[0].kind == "session" and log[0].body["sandbox"] == session.sandbox
    assert log[-1].kind == "ended"
    assert log[-1].body == {"exit_code": 3, "reason": "exited", "error": None}
    said = [event.body for event in log if event.kind == "agent"]
    assert said[0]["subtype"] == "init"
    printed = [event.body for event in log if event.kind == "output"]
    assert {"text": "plain", "stream": "stdout"} in printed
    assert {"text": "oh", "stream": "stderr"} in printed

    session = await kernel.agents.sessions.get(session.id)
    assert (session.state, session.exit_code, session.error) == ("ended", 3, None)
    assert session.conversation == said[0]["session_id"]
    assert (session.usage.cost_usd, session.usage.turns) == (0.25, 2)

    summary = await kernel.agents.sessions.summary(session.id)
    assert summary.commands == ["echo hello"]
    assert summary.changed == [".envrc", "a.txt"]
    assert list(summary.held_back) == [".envrc"] and summary.held_back[".envrc"]
    assert summary.complete
    # Without what was done before the agent ran, such as its installation.
    assert session.ended_at is not None and log[0].at > session.created_at
    assert summary.seconds == session.ended_at - log[0].at

    diff = await kernel.agents.sessions.diff(session.id)
    assert "+two" in diff.patch
    applied = await kernel.agents.sessions.apply(session.id)
    assert (project / "a.txt").read_text() == "two", applied
    assert not (project / ".envrc").exists(), "what is held back was applied"
    await kernel.agents.sessions.apply(session.id, allow_risky=True)
    assert (project / ".envrc").exists()

    kinds = [event.kind for event in (await kernel.events(sandbox_id=session.sandbox)).records]
    assert kinds.count("agent.started") == kinds.count("agent.ended") == 1


async def test_nothing_that_is_kept_has_a_secret(kernel: Kernel, own_state: Path) -> None:
    session = await start(kernel, "exit 0", env={"TOKEN": "s3cr3t-value"})
    await events(kernel, session.id)
    await kernel.agents.sessions.summary(session.id)
    row = await kernel._store.get_session(session.id)
    assert "s3cr3t-value" not in json.dumps(row.request)
    for place in (own_state / "audit", own_state / "agents"):
        for file in place.rglob("*"):
            assert not file.is_file() or b"s3cr3t-value" not in file.read_bytes()
    for place in (own_state / "agents" / "sessions").rglob("*"):
        assert place.stat().st_mode & 0o077 == 0, place


async def test_it_is_told_where_it_is(kernel: Kernel) -> None:
    session = await start(
        kernel, "run cat ~/.fake/CONTEXT.md; echo $FAKE_AGENT; stat -c %a ~/.fake/agent.py"
    )
    log = await events(kernel, session.id)
    results = [e.body for e in log if e.kind == "agent" and e.body.get("type") == "user"]
    text = results[0]["message"]["content"][0]["content"]
    assert "sandbox" in text and "10m" in text
    assert text.endswith("yes\n600\n")


async def test_a_session_that_takes_too_long(kernel: Kernel) -> None:
    session = await start(kernel, "sleep 60", timeout_seconds=0.5)
    log = await events(kernel, session.id)
    assert log[-1].body["reason"] == "timeout"
    session = await kernel.agents.sessions.get(session.id)
    assert session.state == "failed" and session.error == "it ran for more than 0.5"


async def test_stop_and_remove(kernel: Kernel, own_state: Path) -> None:
    session = await start(kernel, "sleep 60")
    stopped = await kernel.agents.sessions.stop(session.id)
    assert (stopped.state, stopped.exit_code) == ("ended", None)
    assert (await kernel.get(session.sandbox)).state == "running"
    await kernel.agents.sessions.remove(session.id)
    with pytest.raises(NotFoundError):
        await kernel.agents.sessions.get(session.id)
    with pytest.raises(NotFoundError):
        await kernel.get(session.sandbox)
    assert not list((own_state / "agents" / "sessions").iterdir())


async def test_in_a_sandbox_that_is_there(kernel: Kernel) -> None:
    box = await kernel.create(SandboxSpec(ephemeral=False, agents=["fake"]), name="work")
    first = await start(kernel, "exit 0", sandbox="work")
    second = await start(kernel, "run true", sandbox="work")
    assert first.sandbox == second.sandbox == box.id
    await events(kernel, second.id)
    await kernel.agents.sessions.remove(second.id)
    assert (await kernel.get("work")).id == box.id, "a sandbox of the user's own is gone"


async def test_going_on(kernel: Kernel) -> None:
    """In its sandbox; and when that is gone, in another one with what it left."""
    first = await start(kernel, "say hello")
    await events(kernel, first.id)
    second = await start(kernel, "run ls ~/.fake", resume=first.id)
    assert second.sandbox == first.sandbox
    log = await events(kernel, second.id)
    assert "I remember say hello" in str([event.body for event in log])
    await kernel.remove(first.sandbox)
    third = await start(kernel, "run ls ~/.fake ~/.fake/memory", resume=second.id)
    assert third.sandbox != first.sandbox
    log = await events(kernel, third.id)
    text = str([event.body for event in log])
    assert "I remember say hellorun ls ~/.fake" in text
    assert "note" in text
    conversation = (await kernel.agents.sessions.get(first.id)).conversation
    assert (await kernel.agents.sessions.get(third.id)).conversation == conversation
    kept = list((kernel.state_dir / "agents/sessions" / second.id).glob("state-0.tar"))
    assert kept and b"nobody's" not in kept[0].read_bytes(), "what is excluded was kept"

    page = await kernel.agents.sessions.list(agent="fake")
    assert [one.id for one in page.sessions] == [third.id, second.id, first.id]


async def test_a_terminal(kernel: Kernel) -> None:
    session = await start(kernel, mode="interactive", pty=[30, 100])
    assert session.job is not None
    jobs = kernel.jobs
    async with jobs.attach(session.job) as one, jobs.attach(session.job) as two:
        for process in (one, two):
            seen = b""
            while b"<30x100>" not in seen:
                chunk = await process.output()
                assert chunk is not None
                seen += chunk.data
        one.resize(20, 60)
        seen = b""
        while b"<20x60>" not in seen:
            chunk = await two.output()
            assert chunk is not None
            seen += chunk.data
        await one.write(b"q")
        while await two.output() is not None:
            pass
    log = await events(kernel, session.id)
    assert [event.kind for event in log] == ["session", "resize", "ended"]
    cast = (await kernel.agents.sessions.recording(session.id)).read_text().splitlines()
    head, *lines = map(json.loads, cast)
    assert (head["version"], head["width"], head["height"]) == (2, 100, 30)
    shown = "".join(data for _, kind, data in lines if kind == "o")
    assert "\x1b[2J<30x100>" in shown and "<20x60>" in shown
    assert [data for _, kind, data in lines if kind == "r"] == ["60x20"]
    assert "q" not in shown, "what was typed is in the recording"
    times = [at for at, _, _ in lines]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"agent": "nobody", "task": "x"}, NotFoundError),
        ({"agent": "fake"}, InvalidInputError),
        ({"agent": "fake", "task": "x", "mode": "interactive"}, InvalidInputError),
        ({"agent": "fake", "mode": "acp"}, UnsupportedError),
        ({"agent": "fake", "task": "x", "resume": "a" * 20}, NotFoundError),
        ({"agent": "fake", "task": "x", "sandbox": "none-such"}, NotFoundError),
        (
            {"agent": "fake", "task": "x", "setup": [["sh", "-c", "echo broken; exit 3"]]},
            NotReadyError,
        ),
        ({"agent": "fake", "task": "x", "workdir": "/none/such"}, ConflictError),
    ],
)
async def test_what_can_not_be_started_leaves_nothing(
    kernel: Kernel, own_state: Path, fields: dict[str, object], error: type[Exception]
) -> None:
    from agentkernel.kernel.agents.model import AgentRequest

    with pytest.raises(error):
        await kernel.agents.sessions.start(AgentRequest(**fields))  # type: ignore[arg-type]
    assert (await kernel.agents.sessions.list()).sessions == []
    assert (await kernel.list()).records == []
    assert not list((own_state / "agents").glob("sessions/*"))


async def test_a_sandbox_that_goes_takes_its_session_along(kernel: Kernel) -> None:
    session = await start(kernel, "sleep 60")
    await kernel.remove(session.sandbox)
    log = await events(kernel, session.id)
    assert log[-1].body["reason"] == "lost"
    session = await kernel.agents.sessions.get(session.id)
    assert (session.state, session.sandbox_name) == ("lost", None)


async def test_lines_without_end_are_bounded(kernel: Kernel) -> None:
    session = await start(kernel, "long 3000000\nsay after")
    log = await events(kernel, session.id)
    cut = [event.body for event in log if event.body.get("cut")]
    assert len(cut) == 1 and len(cut[0]["text"]) == 4096
    assert any("after" in str(event.body) for event in log)
    assert not (await kernel.agents.sessions.summary(session.id)).complete


async def test_another_daemon_listens_on(own_state: Path, tmp_path: Path) -> None:
    """No line is lost, and none is there twice."""
    async with Kernel(own_state) as kernel:
        session = await start(kernel, "count 100\nwait /tmp/go\ncount 100\nwait /tmp/end\nexit 4")
        async for event in kernel.agents.sessions.events(session.id):
            if "n50" in str(event.body):
                break
    async with Kernel(own_state) as kernel:
        await kernel.run(session.sandbox, ["touch", "/tmp/go"])

        async def heard() -> bool:
            found = kernel.agents.sessions.events(session.id, follow=False)
            return sum([1 async for event in found if "'text': 'n" in str(event.body)]) == 200

        await until(heard)
    # What comes when nobody listens, the end included, is heard later.
    async with Kernel(own_state) as kernel:
        await kernel.run(session.sandbox, ["touch", "/tmp/end"])
    async with Kernel(own_state) as kernel:
        log = await events(kernel, session.id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        texts = [
            event.body["message"]["content"][0]["text"]
            for event in log
            if event.body.get("type") == "assistant"
        ]
        assert texts == [f"n{number}" for number in range(100)] * 2
        assert (await kernel.agents.sessions.get(session.id)).exit_code == 4
        await kernel.remove(session.sandbox)


async def test_several_at_once_do_not_see_each_other(kernel: Kernel, project: Path) -> None:
    tasks = [f"write a.txt {number}\nrun cat a.txt" for number in range(3)]
    sessions = await asyncio.gather(
        *(start(kernel, task, spec=working_on(project)) for task in tasks)
    )
    for number, session in enumerate(sessions):
        text = str([event.body for event in await events(kernel, session.id)])
        assert f"'content': '{number}'" in text
    assert (project / "a.txt").read_text() == "one\n"


async def test_one_that_floods_lines_leaves_room_for_others(kernel: Kernel) -> None:
    """Between some of its lines it is others' turn."""
    session = await start(kernel, "flood 50000\nsay after")
    over = asyncio.Event()

    async def take_turns() -> int:
        turns = 0
        while not over.is_set():
            await asyncio.sleep(0)
            turns += 1
        return turns

    turns = asyncio.ensure_future(take_turns())
    log = await events(kernel, session.id)
    over.set()
    assert await turns > 400
    assert sum(event.kind == "output" for event in log) == 50_000
    assert "after" in str(log[-3:])


async def test_nothing_that_an_agent_prints_ends_its_log(kernel: Kernel) -> None:
    lines = [
        b'{"type":"assistant","half":"\\ud800","session_id":"\\udfff"}',
        b'{"type":"result","session_id":"-rf","total_cost_usd":1e999,"num_turns":-1}',
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash",'
        b'"input":{"command":"a\\ud800"}}]}}',
        b"[" * 20_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"\xff\xfe\x00\x1b]0;title\x07",
        b"null",
    ]
    task = "\n".join(f"raw {line.hex()}" for line in lines)
    session = await start(kernel, task)
    log = await events(kernel, session.id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert log[-1].kind == "ended"
    said = [event for event in log if event.kind in ("agent", "output")]
    assert len(said) == len(lines) + 2, "a line was lost"
    summary = await kernel.agents.sessions.summary(session.id)
    msgspec.json.encode(summary)
    assert summary.commands == ["a\\ud800"]
    assert summary.session.conversation and summary.session.conversation.startswith("c-")


async def test_there_are_so_many_and_no_more(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_RUNNING", 1)
    monkeypatch.setattr(sessions, "MAX_KEPT", 2)
    first = await start(kernel, "sleep 60")
    with pytest.raises(ResourceExhaustedError, match="1 sessions of agents run"):
        await start(kernel, "say more", sandbox=first.sandbox)
    await kernel.agents.sessions.stop(first.id)
    ids = [first.id]
    for _ in range(3):
        another = await start(kernel, "exit 0", sandbox=first.sandbox)
        await events(kernel, another.id)
        ids.append(another.id)
    # The oldest that are over go with the next start; of the sandbox nothing does.
    kept = [one.id for one in (await kernel.agents.sessions.list()).sessions]
    assert kept == ids[:0:-1]
    places = (kernel.state_dir / "agents" / "sessions").iterdir()
    assert sorted(place.name for place in places) == sorted(kept)
    assert (await kernel.get(first.sandbox)).state == "running"


async def test_a_recording_goes_on_with_another_daemon(own_state: Path) -> None:
    async def typed(kernel: Kernel, job: str, words: bytes, shown: bytes | None) -> None:
        """Until it is shown, or to the end."""
        async with asyncio.timeout(DEADLINE_S), kernel.jobs.attach(job) as process:
            seen, sent = b"", False
            while (chunk := await process.output()) is not None:
                seen += chunk.data
                if not sent and b"<24x80>" in seen:  # it takes input from here on
                    await process.write(words)
                    sent = True
                if shown is not None and shown in seen:
                    return

    async with Kernel(own_state) as kernel:
        session = await start(kernel, mode="interactive")
        assert session.job is not None
        await typed(kernel, session.job, "ä€".encode(), "[ä€]".encode())
    async with Kernel(own_state) as kernel:
        await typed(kernel, session.job, b"two", b"[two]")
        await typed(kernel, session.job, b"q", None)
        await events(kernel, session.id)
        cast = (await kernel.agents.sessions.recording(session.id)).read_text().splitlines()
        shown = "".join(json.loads(line)[2] for line in cast[1:])
        assert shown.count("[ä€]") == shown.count("[two]") == 1
        assert len([line for line in cast if line.startswith("{")]) == 1
        await kernel.remove(session.sandbox)


async def test_no_agent_works_while_a_setup_may_reach_more(kernel: Kernel) -> None:
    seen = []
    network = kernel.network
    switch = network.switch_phase

    async def watched(id: str, phase: str, **more: object) -> object:
        page = await kernel._store.find_sessions(sandbox_id=id, states=("running",))
        seen.append((phase, [record.state for record in page.records]))
        return await switch(id, phase, **more)  # type: ignore[arg-type]

    network.switch_phase = watched  # type: ignore[method-assign, assignment]
    spec = SandboxSpec(network=NetworkRequest(allow=["model.example"]))
    first = await start(kernel, "sleep 60", spec=spec, setup=[["true"]])
    assert seen == [("setup", []), ("default", [])]
    with pytest.raises(ConflictError, match="an agent works in the sandbox"):
        await start(kernel, "exit 0", sandbox=first.sandbox, setup=[["true"]])
    second = await start(kernel, "exit 0", sandbox=first.sandbox)  # without a setup it may
    await events(kernel, second.id)
    await kernel.agents.sessions.stop(first.id)
    third = await start(kernel, "exit 0", sandbox=first.sandbox, setup=[["true"]])
    await events(kernel, third.id)
    assert seen[2:] == [("setup", []), ("default", [])]
    with pytest.raises(NotReadyError):
        await start(kernel, "exit 0", sandbox=first.sandbox, setup=[["false"]])
    assert (await network.show(first.sandbox)).phase == "default"


async def test_no_session_begins_while_another_is_set_up(kernel: Kernel) -> None:
    spec = SandboxSpec(network=NetworkRequest(allow=["model.example"]))
    first = await start(kernel, "exit 0", spec=spec)
    await events(kernel, first.id)
    box = first.sandbox
    waits = [["sh", "-c", "touch /tmp/began; while [ ! -e /tmp/go ]; do sleep 0.02; done"]]
    setting_up = asyncio.ensure_future(start(kernel, "exit 0", sandbox=box, setup=waits))

    async def began() -> bool:
        return (await kernel.run(box, ["test", "-e", "/tmp/began"])).status.exit_code == 0

    await until(began)
    assert (await kernel.network.show(box)).phase == "setup"
    for setup in ([], [["true"]]):
        with pytest.raises(ConflictError, match="being set up"):
            await start(kernel, "exit 0", sandbox=box, setup=setup)
    assert (await kernel.network.show(box)).phase == "setup", "of the one that is under way"
    await kernel.run(box, ["touch", "/tmp/go"])
    await events(kernel, (await setting_up).id)
    assert (await kernel.network.show(box)).phase == "default"
    await events(kernel, (await start(kernel, "exit 0", sandbox=box)).id)


async def test_the_audit_log_has_no_task(kernel: Kernel, own_state: Path) -> None:
    session = await start(kernel, "say my words alone")
    log = await events(kernel, session.id)
    assert "my words alone" in str(log)  # it got there
    lines = [
        line for file in (own_state / "audit").iterdir() for line in file.read_text().split("\n")
    ]
    assert any('"job.start"' in line for line in lines)
    assert not [line for line in lines if "my words" in line]
