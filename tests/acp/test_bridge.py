"""An editor drives an agent in a sandbox by the official client: what comes through, and what does
not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import text_block
from acp.schema import EnvVariable, HttpMcpServer, McpServerStdio, ResourceContentBlock

from .editors import Connection, Editor, bridge, until

pytestmark = pytest.mark.anyio
GUEST = "/workspace"
COMMAND = ("--", "python3", f"{GUEST}/fake_agent.py")
WORDS = ("fake", "--workspace-path", GUEST, "--apply", "never", *COMMAND)


async def begin(connection: Connection, project: Path) -> str:
    session = await connection.agent.new_session(cwd=str(project), mcp_servers=[])
    id: str = session.session_id
    return id


async def turn(connection: Connection, session: str, *lines: str) -> str:
    result = await connection.agent.prompt(
        session_id=session, prompt=[text_block("\n".join(lines))]
    )
    reason: str = result.stop_reason
    return reason


def ask_daemon(state: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", *words, "--json"],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


async def test_a_turn(acp_state: Path, project: Path) -> None:
    """Messages, a question, a diff and a terminal: paths are the editor's, the rest is inside."""
    editor = Editor(choose=lambda call: "yes")
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        reason = await turn(
            connection,
            session,
            "say hello",
            "ask may I?",
            "edit notes.txt",
            "run echo $((6*7)) >&2; exit 3",
        )
    assert reason == "end_turn"
    hello, answer, ran = editor.said(session)
    assert hello == "hello"
    assert "yes" in answer and "selected" in answer
    assert editor.questions[0]["locations"] == [{"path": f"{project}/asked"}]
    edit = editor.calls("t-edit")[0]
    assert edit["content"][0]["path"] == f"{project}/notes.txt"
    assert edit["locations"][0]["path"] == f"{project}/notes.txt"
    assert '"exitCode": 3' in ran and "42" in ran
    shown = [call["content"][0]["content"]["text"] for call in editor.calls("t-run")]
    assert "42" in shown[-1]
    # Copy-on-write: the sandbox has the change, and the project has not.
    assert (project / "notes.txt").read_text() == "one\n"
    assert editor.host_calls == []


async def test_what_the_agent_is_told(acp_state: Path, project: Path) -> None:
    """Paths of the host become the sandbox's, in every place; nothing of the host's is offered."""
    editor = Editor()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        client = connection.hello.field_meta["client"]
        assert client["fs"] == {"readTextFile": True, "writeTextFile": True}
        assert client["terminal"] is True
        # Nothing that an editor would carry out by running a command on the host.
        methods = [method.model_dump(exclude_none=True) for method in connection.hello.auth_methods]
        assert [method["id"] for method in methods] == ["agentkernel-login", "m"]
        assert not any("args" in method or "field_meta" in method for method in methods)
        answer = await connection.agent.new_session(
            cwd=f"{project}/sub",
            additional_directories=[str(project), "/etc", f"{project}-other"],
            mcp_servers=[
                McpServerStdio(
                    name="inside",
                    command=f"{project}/server",
                    args=["--root", str(project), f"{project}x"],
                    env=[EnvVariable(name="ROOT", value=f"{project}/a")],
                ),
                HttpMcpServer(type="http", name="far", url="https://example.org/mcp", headers=[]),
                HttpMcpServer(type="http", name="host", url="http://127.0.0.1:1/mcp", headers=[]),
            ],
        )
        given = answer.field_meta["given"]
        assert given["cwd"] == f"{GUEST}/sub"
        assert given["additionalDirectories"] == [GUEST]
        inside, far = given["mcpServers"]
        assert inside["command"] == f"{GUEST}/server"
        assert inside["args"] == ["--root", GUEST, f"{project}x"]
        assert inside["env"][0]["value"] == f"{GUEST}/a"
        assert far["name"] == "far"
        link = ResourceContentBlock(
            type="resource_link", name="notes", uri=f"file://{project}/no%20tes.txt#L3"
        )
        await connection.agent.prompt(session_id=answer.session_id, prompt=[link])
        assert editor.said(answer.session_id) == [f"link file://{GUEST}/no%20tes.txt#L3"]
        listed = await connection.agent.list_sessions()
        assert f"{project}/sub" in [entry.cwd for entry in listed.sessions]
        with pytest.raises(acp.RequestError, match="not in the sandbox"):
            await connection.agent.new_session(cwd="/etc", mcp_servers=[])


async def test_nothing_of_the_host_is_reached(
    acp_state: Path, project: Path, tmp_path: Path
) -> None:
    """Files and terminals are the sandbox's, by whatever path; no other call reaches the editor."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    (project / "link").unlink(missing_ok=True)
    (project / "link").symlink_to(secret)
    assert (project / "link").read_text() == "of the host"  # a host's process would have it
    up = f"{GUEST}/../../../../../../../..{secret}"
    editor = Editor()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        await turn(
            connection,
            session,
            f"read {secret}",
            f"read {up}",
            f"read {GUEST}/link",
            f"run cat {secret} {up} {GUEST}/link",
            "run hostname; cat /proc/1/comm",
            f"write {secret} from inside",
            f"read {secret}",
            "write relative no",
            "call fs/list {}",
            'call _zed/open {"path": "/etc/shadow"}',
            'call terminal/output {"terminalId": "../../1"}',
            "call mcp/connect {}",
            "read /etc/hostname",
            "run cat /etc/hostname",
        )
        said = editor.said(session)
    assert secret.read_text() == "of the host"
    assert not any("of the host" in text for text in said)
    assert all(text.startswith("read error -32002") for text in said[:3])
    assert '"exitCode": 1' in said[3] and "No such file" in said[3]
    assert "agentd" in said[4] and os.uname().nodename not in said[4]
    assert said[5].startswith("wrote {") and "from inside" in said[6]
    assert said[7].startswith("wrote error -32602")
    assert said[8].startswith("fs/list error -32601")
    assert said[9].startswith("_zed/open error -32601")
    assert said[10].startswith("terminal/output error -32602")
    assert said[11].startswith("mcp/connect error -32601")
    name = json.loads(said[12].removeprefix("read "))["content"]
    assert repr(name) in said[13]  # the same machine for both: the sandbox
    assert editor.host_calls == []


async def test_an_agent_that_writes_garbage(acp_state: Path, project: Path) -> None:
    editor = Editor()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        assert await turn(connection, session, "garbage", "say still here") == "end_turn"
        assert editor.said(session) == ["still here"]
        assert await turn(connection, session, "say again") == "end_turn"


async def test_cancel(acp_state: Path, project: Path) -> None:
    editor = Editor()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        work = asyncio.ensure_future(turn(connection, session, "say begun", "wait /nowhere"))
        await until(lambda: editor.said(session) == ["begun"])
        await connection.agent.cancel(session_id=session)
        assert await work == "cancelled"


def running(state: Path) -> list[dict[str, Any]]:
    """Agents that run."""
    jobs = ask_daemon(state, "job", "list")["jobs"]
    return [job for job in jobs if job["state"] == "running" and "fake_agent.py" in job["argv"][-1]]


async def test_the_next_editor_finds_the_session(acp_state: Path, project: Path) -> None:
    """The agent stays when its editor goes, with its sandbox; two editors at once do not share."""
    first, second, other = Editor(), Editor(), Editor()
    async with bridge(first, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        await turn(connection, session, "say remember", "write /root/mark here")
        jobs = [job["id"] for job in running(acp_state)]
        async with bridge(other, acp_state, *WORDS, cwd=project) as beside:
            with pytest.raises(acp.RequestError, match="no such session"):
                await beside.agent.load_session(cwd=str(project), session_id="s99")
            alone = await begin(beside, project)
            await turn(beside, alone, "read /root/mark")
            assert other.said(alone)[0].startswith("read error")
    async with bridge(second, acp_state, *WORDS, cwd=project) as connection:
        await connection.agent.load_session(cwd=str(project), session_id=session, mcp_servers=[])
        assert second.said(session)[0] == "remember"
        await turn(connection, session, "read /root/mark")
        assert "here" in second.said(session)[-1]
    # The agent was ended with its first editor, and started again where it had been.
    (old,) = jobs
    assert ask_daemon(acp_state, "job", "info", old)["state"] == "ended"


async def test_a_turn_goes_on_without_its_editor(acp_state: Path, project: Path) -> None:
    first, second = Editor(), Editor()
    async with bridge(first, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        lines = ["say begun", "ask nobody answers", "wait /tmp/finish", "say finished"]
        work = asyncio.ensure_future(turn(connection, session, *lines))
        await until(lambda: len(first.said(session)) == 2)
    work.cancel()
    (job,) = running(acp_state)
    async with bridge(second, acp_state, *WORDS, cwd=project) as connection:
        assert [one["id"] for one in running(acp_state)] == [job["id"]]  # the same process
        other = await begin(connection, project)
        await turn(connection, other, "write /tmp/finish now")
        await until(lambda: second.said(session) == ["finished"])


async def test_a_bridge_that_is_killed(acp_state: Path, project: Path) -> None:
    """Its agent is found again by the next one."""
    editor = Editor()
    async with bridge(Editor(), acp_state, *WORDS, cwd=project) as connection:
        (job,) = running(acp_state)
        connection.process.kill()
        await connection.process.wait()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        assert [one["id"] for one in running(acp_state)] == [job["id"]]
        session = await begin(connection, project)
        await turn(connection, session, "say hello")
        assert editor.said(session) == ["hello"]


async def test_in_a_sandbox_that_is_there(acp_state: Path, project: Path, tmp_path: Path) -> None:
    made = ask_daemon(acp_state, "sandbox", "create", "--workspace", str(project), "mine")
    words = ("fake", "--sandbox", "mine", "--apply", "never", *COMMAND)
    editor = Editor()
    async with bridge(editor, acp_state, *words, cwd=project) as connection:
        session = await begin(connection, project)
        await turn(connection, session, "run pwd")
        assert GUEST in editor.said(session)[0]
        (job,) = running(acp_state)
        assert job["sandbox_id"] == made["id"]
    with pytest.raises(acp.RequestError, match="the sandbox has"):
        async with bridge(Editor(), acp_state, *words, cwd=tmp_path):
            pass


async def test_a_login_is_asked_for(
    acp_state: Path, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without one nothing of the agent runs, and the editor is told what to do; then it works."""
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents"
    place.mkdir(parents=True, exist_ok=True)
    (place / "needy.toml").write_text(
        'name = "needy"\ntitle = "Needy"\nversion = "1"\n'
        f'[command]\nacp = ["python3", "{project}/fake_agent.py"]\n'
        '[mcp]\nformat = "claude"\nfile = "~/.needy/mcp.json"\nwords = ["--mcp", "{mcp}"]\n'
        '[[login.keys]]\nsecret = "NEEDY_KEY"\nbinding = "model.example"\n'
    )
    editor = Editor()
    async with bridge(editor, acp_state, "needy", cwd=project) as connection:
        (method,) = connection.hello.auth_methods
        assert method.id == "agentkernel-login" and "agent login needy" in method.description
        with pytest.raises(acp.RequestError, match="agent login needy") as refused:
            await begin(connection, project)
        assert refused.value.code == -32000
        set_secret(acp_state, "NEEDY_KEY", "the-real-key-0123456789")
        await connection.agent.authenticate(method_id="agentkernel-login")
        own = McpServerStdio(name="mine", command="/bin/true", args=[], env=[])
        made = await connection.agent.new_session(cwd=str(project), mcp_servers=[own])
        # The sandbox's own tools, of which this agent is told nowhere else.
        names = [server["name"] for server in made.field_meta["given"]["mcpServers"]]
        assert names == ["mine", "agentkernel"]
        await turn(connection, made.session_id, "env NEEDY_KEY")
        (said,) = editor.said(made.session_id)
    assert said.startswith("NEEDY_KEY=") and "None" not in said and "the-real-key" not in said


def set_secret(state: Path, name: str, value: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "agentkernel", "secret", "set", name],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
        input=value.encode(),
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )


async def test_a_daemon_that_is_killed_in_a_turn(acp_state: Path, project: Path) -> None:
    """The agent goes on, and so does the turn: nothing is lost and nothing comes twice."""
    editor = Editor()
    async with bridge(editor, acp_state, *WORDS, cwd=project) as connection:
        session = await begin(connection, project)
        lines = ["say one", "run sleep 2; echo slept", "say two", "wait /tmp/go", "say three"]
        work = asyncio.ensure_future(turn(connection, session, *lines))
        await until(lambda: editor.said(session) == ["one"])
        pid = ask_daemon(acp_state, "daemon", "status")["pid"]
        os.kill(pid, signal.SIGKILL)
        await until(lambda: len(editor.said(session)) == 3)
        assert ask_daemon(acp_state, "daemon", "status")["pid"] != pid
        beside = asyncio.ensure_future(
            turn(connection, await begin(connection, project), "write /tmp/go x")
        )
        assert await work == "end_turn"
        assert await beside == "end_turn"
    one, ran, two, three = editor.said(session)
    assert (one, two, three) == ("one", "two", "three")
    assert "slept" in ran and '"exitCode": 0' in ran


def at(call: dict[str, Any]) -> str:
    text: str = call["content"][0]["content"]["text"]
    return text


async def test_changes_are_applied_as_the_user_says(acp_state: Path, tmp_path: Path) -> None:
    project = tmp_path / "applied"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    (project / "fake_agent.py").write_bytes(Path(__file__).with_name("fake_agent.py").read_bytes())
    words = ("fake", "--", "python3", f"{project}/fake_agent.py")  # at the same path
    choices = iter(["agentkernel-keep", "agentkernel-apply", "agentkernel-apply-always"])
    editor = Editor(choose=lambda call: next(choices))
    async with bridge(editor, acp_state, *words, cwd=project) as connection:
        session = await begin(connection, project)
        await turn(connection, session, "say nothing is changed")
        assert editor.questions == []
        await turn(connection, session, "edit a.txt", "edit .envrc", "edit .git/hooks/post-commit")
        assert (project / "a.txt").read_text() == "one\n"
        (question,) = editor.questions
        assert question["title"] == f"Apply 1 file to {project}"
        assert question["locations"] == [{"path": f"{project}/a.txt"}]
        assert "- a.txt" in at(question) and "Held back" in at(question)
        assert "- .envrc:" in at(question) and "- .git/hooks/post-commit:" in at(question)
        await turn(connection, session, "say the same is not asked for twice")
        assert len(editor.questions) == 1
        await turn(connection, session, "edit b.txt")
        assert (project / "a.txt").read_text() == "one\nedited\n"
        assert (project / "b.txt").read_text() == "edited\n"
        assert "Applied:" in at(editor.calls("agentkernel-apply-2")[-1])
        # The user changes the same line, and is asked: the file stays theirs.
        (project / "a.txt").write_text("mine\n")
        await turn(connection, session, "edit a.txt", "edit c.txt")
        assert (project / "c.txt").read_text() == "edited\n"
        assert (project / "a.txt").read_text() == "mine\n"
        assert "same lines" in at(editor.calls("agentkernel-apply-3")[-1])
        await turn(connection, session, "edit d.txt")  # always, from now on
        assert (project / "d.txt").read_text() == "edited\n"
        assert len(editor.questions) == 3
    assert not (project / ".envrc").exists() and not (project / ".git").exists()


async def test_nothing_is_applied_that_the_user_did_not_see(
    acp_state: Path, tmp_path: Path
) -> None:
    """An agent answers for its user, or changes more once the user has seen what there is."""
    project = tmp_path / "forged"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    (project / "fake_agent.py").write_bytes(Path(__file__).with_name("fake_agent.py").read_bytes())
    words = ("fake", "--", "python3", f"{project}/fake_agent.py")
    choices = iter(["agentkernel-keep", "agentkernel-apply", "agentkernel-apply"])
    editor = Editor(choose=lambda call: next(choices))
    async with bridge(editor, acp_state, *words, cwd=project) as connection:
        session = await begin(connection, project)

        async def until_said(word: str) -> None:
            await connection.agent.cancel(session_id=session)
            await until(lambda: word in editor.said(session))

        editor.meanwhile = lambda: until_said("forge")
        await turn(connection, session, "edit a.txt", "forge")
        assert (project / "a.txt").read_text() == "one\n"
        assert len(editor.questions) == 1 and "Kept" in at(editor.calls("agentkernel-apply-1")[-1])

        editor.meanwhile = lambda: until_said("late")
        await turn(connection, session, "edit b.txt", "late c.txt")
        assert [at(question) for question in editor.questions[1:]] == [
            "- a.txt\n- b.txt", "- a.txt\n- b.txt\n- c.txt"
        ]  # fmt: skip
        assert "Not applied" in at(editor.calls("agentkernel-apply-2")[-1])
        assert (project / "c.txt").read_text() == "late\n"  # as seen, it is


def talk(state: Path, cwd: Path, words: list[str], *lines: bytes) -> tuple[list[Any], str, int]:
    """What a bridge answers to lines, and says to people; every line on stdout is a message."""
    done = subprocess.run(
        [sys.executable, "-m", "agentkernel", "acp", *words],
        env={**os.environ, "AGENTKERNEL_STATE_DIR": str(state)},
        cwd=cwd,
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        timeout=60,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    return answers, done.stderr.decode(), done.returncode


def test_what_is_wrong_is_told_by_the_protocol(acp_state: Path, tmp_path: Path) -> None:
    hello = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    answers, said, code = talk(acp_state, tmp_path, ["nobody"], hello)
    (answer,) = answers
    assert answer["id"] == 1 and answer["error"]["data"]["agentkernel"]["code"] == "not_found"
    assert "no agent 'nobody'" in answer["error"]["message"] and "agents are" in said
    assert code == 0 and "Traceback" not in said
    # A project's file that can't be believed, and an option that can't be.
    (tmp_path / "agentkernel.toml").write_text("[sandbox]\nnonsense = 1\n")
    ((answer,), said, _) = talk(acp_state, tmp_path, ["claude"], hello)
    assert "nonsense" in answer["error"]["message"] and "Traceback" not in said
    (tmp_path / "agentkernel.toml").unlink()
    ((answer,), _, _) = talk(acp_state, tmp_path, ["claude", "--workspace", "/tmp:rw"], hello)
    assert "copy-on-write" in answer["error"]["message"]


def test_an_editor_that_writes_garbage(acp_state: Path, tmp_path: Path) -> None:
    lines = [
        b"hello",
        b"[]",
        b"{",
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","method":"session/cancel"}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":[]}}',
        b"x" * (17 << 20),
        b'{"jsonrpc":"2.0","id":"a","method":"session/new"}',
    ]
    answers, said, code = talk(acp_state, tmp_path, ["nobody"], *lines)
    assert [answer["error"]["code"] for answer in answers[:-1]] == [-32700] * 4
    assert [answer["id"] for answer in answers] == [None] * 4 + ["a"]
    assert code == 0 and "Traceback" not in said
