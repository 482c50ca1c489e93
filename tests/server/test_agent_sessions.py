"""Sessions of agents over HTTP and by the SDK, with an agent that tests alone have; the kernel's
part is in tests/agents/sessions."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import Host, Transport
from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.workspaces.model import file_clock_ns

from .daemon_process import Daemon, eventually
from .network_process import NetworkDaemon

FAKE = Path(__file__).parents[1] / "agents" / "sessions" / "fake.toml"
PATH = "/v1/agent-sessions"


@pytest.fixture(scope="module", autouse=True)
def fake_agent(no_config: None) -> None:
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(FAKE, place)


@pytest.fixture
def host(daemon: Daemon) -> Iterator[Host]:
    transport = Transport(str(daemon.state_dir))
    yield Host(transport=transport)
    transport.close()


def read_events(daemon: Daemon, session: str, *, last: int | None = None) -> list[tuple[str, Any]]:
    """A stream to its end: ids and bodies."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    status, body = daemon.request("GET", f"{PATH}/{session}/events", headers=headers)
    assert status == 200, body
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
        )
        if "id" in fields:
            found.append((fields["id"], json.loads(fields["data"])))
    return found


def test_from_the_start_to_the_end(daemon: Daemon) -> None:
    body = {"agent": "fake", "task": "say hello\nexit 2"}
    status, session = daemon.request("POST", PATH, body)
    assert status == 201 and session["state"] == "running", session
    seen = read_events(daemon, session["id"])
    assert [int(id) for id, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][1]["kind"] == "ended"
    assert read_events(daemon, session["id"], last=2) == seen[2:]
    session = daemon.request("GET", f"{PATH}/{session['id']}")[1]
    assert session["exit_code"] == 2 and session["last_event"] == len(seen)
    listed = daemon.request("GET", f"{PATH}?agent=fake&limit=1")[1]["sessions"]
    assert [one["id"] for one in listed] == [session["id"]]
    for part in ("prompt", "cancel"):
        answer = daemon.request("POST", f"{PATH}/{session['id']}/{part}", {"text": "x"})
        assert answer[0] in (400, 409), answer
    assert daemon.request("DELETE", f"{PATH}/{session['id']}")[0] == 204
    assert daemon.request("GET", f"{PATH}/{session['id']}")[0] == 404
    assert daemon.request("GET", f"/v1/sandboxes/{session['sandbox']}")[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"agent": "nobody", "task": "x"}, 404),
        ({"agent": "fake"}, 400),
        ({"agent": "fake", "task": "x", "pty": [0, 1], "mode": "interactive"}, 400),
        ({"agent": "fake", "task": "x", "unknown": 1}, 400),
        ({"agent": "fake", "task": "x" * 200_000}, 400),
        ({"agent": "fake", "task": "x", "spec": {"workspace": "/none/such"}}, 404),
    ],
)
def test_what_is_wrong_is_said(daemon: Daemon, body: dict[str, Any], status: int) -> None:
    answer = daemon.request("POST", PATH, body)
    assert answer[0] == status, answer
    assert daemon.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []


def test_the_sdk(host: Host, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    while file_clock_ns() <= (tmp_path / "a").stat().st_ctime_ns:
        time.sleep(0.001)  # older than what comes, by the clock of files, which ticks seldom
    told: list[str] = []
    session = host.agent_sessions.start(
        "fake", "write a two\nrun echo hi\ncount 3", progress=told.append, workspace=str(tmp_path)
    )
    kinds = [event["kind"] for event in session.events()]
    assert kinds[0] == "session" and kinds[-1] == "ended" and kinds.count("agent") == 7
    assert session.wait()["state"] == "ended"
    summary = session.summary()
    assert (summary["commands"], summary["changed"]) == (["echo hi"], ["a"])
    assert "+two" in session.diff()["patch"]
    applied = session.apply()
    assert applied["complete"], applied
    assert (tmp_path / "a").read_text() == "two"
    with pytest.raises(NotFoundError, match="nothing was recorded"):
        session.recording()
    with pytest.raises(ConflictError):
        session.send_prompt("more")
    again = host.agent_sessions.start("fake", "say more", resume=session.id)
    assert again.info["sandbox"] == session.info["sandbox"]
    again.wait()
    found = host.agent_sessions.list(agent="fake", project=str(tmp_path))
    assert [one.id for one in found] == [again.id, session.id]
    again.remove()
    session.remove()
    with pytest.raises(NotFoundError):
        host.agent_sessions.get(session.id)


def test_a_terminal_by_the_sdk(host: Host) -> None:
    session = host.agent_sessions.start("fake", mode="interactive", options={"pty": [30, 90]})
    with session.terminal(size=(20, 70)) as terminal:
        seen = ""
        for chunk in terminal:
            seen += chunk.text
            if "<20x70>" in seen:
                break
        terminal.write("q")
        assert terminal.wait().exit_code == 7
    assert session.wait()["exit_code"] == 7
    head = json.loads(session.recording().splitlines()[0])
    assert (head["width"], head["height"]) == (90, 30)
    session.remove()


def test_a_killed_daemon_leaves_the_agent_at_work(own_daemon: Daemon) -> None:
    """It goes on, is attached to and listened to again; no line is lost, and none comes twice."""
    task = "count 50\nwait /tmp/go\ncount 50\nexit 5"
    _, session = own_daemon.request("POST", PATH, {"agent": "fake", "task": task})
    own_daemon.kill()
    own_daemon.start()
    session = own_daemon.request("GET", f"{PATH}/{session['id']}")[1]
    assert session["state"] == "running"
    own_daemon.exec(session["sandbox"], "touch /tmp/go")
    seen = [body for _, body in read_events(own_daemon, session["id"])]
    assert [body["seq"] for body in seen] == list(range(1, len(seen) + 1))
    said = [
        body["body"]["message"]["content"][0]["text"]
        for body in seen
        if body["body"].get("type") == "assistant"
    ]
    assert said == [f"n{number}" for number in range(50)] * 2
    assert seen[-1]["body"]["exit_code"] == 5


def test_scopes(network_daemon: NetworkDaemon, tmp_path: Path) -> None:
    """A token runs agents with the scopes for it, sees its own sessions alone, and names no path
    of this machine."""
    callers = {
        "reads": network_daemon.caller("sessions-reads", scopes=["read"]),
        "works": network_daemon.caller("sessions-works", scopes=["read", "manage", "exec"]),
    }

    def ask(who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return callers[who].request(method, path, body)

    wanted = {"agent": "fake", "task": "say hello"}
    assert ask("reads", "POST", PATH, wanted)[0] == 403
    there = {**wanted, "spec": {"workspace": str(tmp_path)}}
    status, problem = ask("works", "POST", PATH, there)
    assert (status, problem["details"]["needed"]) == (403, "host-paths")
    status, session = ask("works", "POST", PATH, wanted)
    assert status == 201, session
    assert ask("works", "GET", f"{PATH}/{session['id']}")[0] == 200
    assert ask("reads", "GET", f"{PATH}/{session['id']}")[0] == 404
    assert ask("reads", "GET", PATH)[1]["sessions"] == []
    assert ask("works", "POST", f"{PATH}/{session['id']}/apply", {})[0] == 403
    assert ask("works", "DELETE", f"{PATH}/{session['id']}")[0] == 204


def test_to_go_on_needs_what_the_beginning_needed(
    network_daemon: NetworkDaemon, tmp_path: Path
) -> None:
    """Two tokens of one owner: what one was allowed, the other does not get by going on with it."""
    (tmp_path / "of-the-host").write_text("seen\n")
    more = network_daemon.caller(
        "sessions-more", owner="pair", scopes=["read", "manage", "exec", "host-paths"]
    )
    less = network_daemon.caller("sessions-less", owner="pair", scopes=["read", "manage", "exec"])
    wanted = {"agent": "fake", "task": "run cat of-the-host", "spec": {"workspace": str(tmp_path)}}
    status, first = more.request("POST", PATH, wanted)
    assert status == 201, first
    eventually(lambda: less.request("GET", f"{PATH}/{first['id']}")[1]["state"] == "ended")
    assert less.request("DELETE", f"/v1/sandboxes/{first['sandbox']}")[0] == 204
    again = {"agent": "fake", "task": "run cat of-the-host", "resume": first["id"]}
    status, problem = less.request("POST", PATH, again)
    assert (status, problem["details"].get("needed")) == (403, "host-paths"), problem
    assert less.request("GET", "/v1/sandboxes")[1]["sandboxes"] == []
    # The control: who may have it from the beginning may go on.
    status, second = more.request("POST", PATH, again)
    assert status == 201 and second["project"] == str(tmp_path), second
    for session in (second, first):
        assert more.request("DELETE", f"{PATH}/{session['id']}")[0] == 204
