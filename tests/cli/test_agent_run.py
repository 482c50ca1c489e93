"""`agent run`: headless and on a terminal, to its end and what becomes of it. The agent is one that
does as it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, Cli, Json
from tests.cli.fake_agent import NAME, write_definition
from tests.cli.ptys import OnTerminal

pytestmark = pytest.mark.usefixtures("daemon_dir")


@pytest.fixture(autouse=True)
def definition(ask: Json, cli: Cli) -> Iterator[None]:
    """And no sandbox stays for the next test."""
    write_definition()
    yield
    for id in boxes(ask):
        cli("sandbox", "remove", id)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "file").write_text("one\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    monkeypatch.chdir(path)
    return path


def git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=True, capture_output=True, timeout=20, text=True,
    )  # fmt: skip
    return done.stdout


def sessions(ask: Json, project: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask("agent", "sessions", "--project", str(project))["sessions"]
    return found


def boxes(ask: Json) -> set[str]:
    return {box["id"] for box in ask("sandbox", "list")["sandboxes"]}


def test_a_task_is_done_shown_and_applied(cli: Cli, ask: Json, project: Path) -> None:
    task = "pwd; echo two >> file; echo x > .envrc; printf '\\033]52;c;aGk=\\007\\n'"
    done = cli("agent", "run", NAME, "--yes", "--summary", "../summary.json", task)
    assert done.returncode == 0, "what is held back was not to be applied"
    out = done.stdout.decode()
    assert str(project) in out and "all done" in out and "\x1b" not in out
    told = done.stderr.decode()
    for words in ("M  file  +1 -0", "A! .envrc", "held back .envrc", "$0.2500", "kept: fake-"):
        assert words in told, told
    assert (project / "file").read_text() == "one\ntwo\n" and not (project / ".envrc").exists()
    (session,) = sessions(ask, project)
    assert (session["state"], session["exit_code"]) == ("ended", 0)
    summary = json.loads((project.parent / "summary.json").read_text())
    assert summary["session"]["id"] == session["id"] and summary["usage"]["cost_usd"] == 0.25
    assert session["sandbox"] in boxes(ask)
    done = cli("agent", "summary", session["sandbox_name"])
    assert b"A! .envrc" in done.stdout and b"$0.2500" in done.stdout, done
    # The rest, once the user has looked at it.
    done = cli("agent", "diff", "--stat", session["id"])
    assert b"A! .envrc" in done.stdout and b"held back" in done.stderr
    assert cli("agent", "apply", "--allow-risky", session["id"]).returncode == 0
    assert (project / ".envrc").read_text() == "x\n"
    text = cli("replay", session["id"]).stdout.decode()
    assert "all done" in text and "\x1b" not in text
    events = [
        json.loads(line)
        for line in cli("replay", "--json", session["id"]).stdout.split(b"\n")
        if line
    ]
    assert {"agent", "ended"} <= {event["kind"] for event in events}
    assert cli("agent", "forget", session["id"]).returncode == 0
    assert sessions(ask, project) == [] and session["sandbox"] not in boxes(ask)
    assert cli("agent", "forget", session["id"]).returncode == 125


def test_its_own_events_and_its_exit_code(cli: Cli, ask: Json, project: Path) -> None:
    before = boxes(ask)
    done = cli("agent", "run", NAME, "--json", "-", input=b'echo \'{"type":"x", "b":  1}\'; exit 3')
    assert done.returncode == 3, done.stderr
    lines = done.stdout.split(b"\n")
    assert b'{"type":"x", "b":  1}' in lines, "unchanged"
    assert lines[0] == b'{"type":"system","subtype":"init","session_id":"conversation-7"}'
    assert b"changed   nothing" in done.stderr
    assert boxes(ask) == before, "without changes nothing is kept"
    (session,) = sessions(ask, project)
    assert session["exit_code"] == 3


def test_a_time_limit_is_told_as_that_of_run(cli: Cli, project: Path) -> None:
    done = cli("agent", "run", NAME, "--timeout", "1", "--rm", "sleep 60")
    assert done.returncode == 124 and b"--timeout" in done.stderr, done.stderr


def test_who_came_later_ends_nothing(cli: Cli, ask: Json, project: Path) -> None:
    """And a daemon that is killed meanwhile is waited for, without a line twice or not at all."""
    task = "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo late"
    command = [*COMMAND, "agent", "run", NAME, "--rm", task]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert first.stdout is not None and b"begun" in first.stdout.readline()
        (session,) = sessions(ask, project)
        words = [*COMMAND, "agent", "attach", session["id"]]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as second:
            assert second.stdout is not None and b"begun" in second.stdout.readline()
            second.send_signal(signal.SIGINT)
            _, told = second.communicate(timeout=50)
        assert second.returncode == 128 + signal.SIGINT and b"it goes on" in told, told
        os.kill(ask("daemon", "status")["pid"], signal.SIGKILL)
        assert cli("exec", session["sandbox"], "--", "touch", "/tmp/go").returncode == 0
        out, told = first.communicate(timeout=50)
    assert first.returncode == 0 and out == b"late\nall done\n", (out, told)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_ends_the_agent(ask: Json, project: Path, number: signal.Signals) -> None:
    command = [*COMMAND, "agent", "run", NAME, "--rm", "echo begun; sleep 60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        while b"begun" not in (line := process.stdout.readline()):
            assert line
        process.send_signal(number)
        _, told = process.communicate(timeout=50)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number, told
    asks = number == signal.SIGINT
    assert (b"asking the agent to stop" if asks else b"the agent is stopped") in told
    (session,) = sessions(ask, project)
    assert session["state"] == "ended"
    assert session["sandbox"] not in boxes(ask), "--rm"


def test_what_can_not_be_run(cli: Cli, project: Path) -> None:
    for words, said in (
        (("agent", "run", NAME), b"no terminal"),
        (("agent", "run", NAME, "--json"), b"needs a task"),
        (("agent", "run", NAME, " "), b"empty"),
        (("agent", "run", "nobody", "x"), b"nobody"),
        (("agent", "run", NAME, "--mcp", "none-such", "x"), b"none-such"),
        (("agent", "run", NAME, "--continue", "x"), b"no session"),
        (("agent", "attach", "nothing"), b"nothing"),
        (("replay", "nothing"), b"nothing"),
    ):
        done = cli(*words)
        assert done.returncode == 125 and said in done.stdout + done.stderr, (words, done)
        assert b"Traceback" not in done.stderr


def test_what_git_leaves_inside_is_no_change(cli: Cli, ask: Json, project: Path) -> None:
    before = boxes(ask)
    task = "echo two >> file; touch .git/opencode; git status >/dev/null"
    done = cli("agent", "run", NAME, "--yes", task)
    assert done.returncode == 0 and b"held" not in done.stderr, done.stderr
    assert (project / "file").read_text() == "one\ntwo\n" and boxes(ask) == before
    # A commit is something: it stays inside, with the sandbox.
    commit = "git -c user.name=n -c user.email=e@example.org commit -qam inside"
    done = cli("agent", "run", NAME, "--yes", f"echo three >> file; {commit}")
    assert done.returncode == 0 and b"commits made inside stay inside" in done.stderr, done.stderr
    assert b".git/objects" not in done.stderr
    assert (project / "file").read_text() == "one\ntwo\nthree\n"
    (box,) = boxes(ask) - before
    assert cli("sandbox", "remove", box).returncode == 0


def test_an_apply_with_a_conflict_is_told_by_its_status(cli: Cli, ask: Json, project: Path) -> None:
    """The user has changed the same line meanwhile."""
    task = "echo inside > file; echo begun; until [ -e /tmp/go ]; do sleep 0.1; done"
    command = [*COMMAND, "agent", "run", NAME, "--yes", task]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        while b"begun" not in (line := process.stdout.readline()):
            assert line
        (project / "file").write_text("outside\n")
        (session,) = sessions(ask, project)
        assert cli("exec", session["sandbox"], "--", "touch", "/tmp/go").returncode == 0
        _, told = process.communicate(timeout=50)
    assert process.returncode == 1 and b"conflict: file" in told, told
    assert (project / "file").read_text() == "outside\n"
    assert b"+inside" in cli("agent", "diff", session["id"]).stdout
    assert cli("sandbox", "remove", session["sandbox"]).returncode == 0


def test_going_on_with_a_conversation(cli: Cli, ask: Json, project: Path) -> None:
    first = cli("agent", "run", NAME, "mkdir -p ~/.fake; echo kept > ~/.fake/state")
    assert first.returncode == 0, first.stderr
    before = boxes(ask)
    again = cli("agent", "run", NAME, "--continue", "cat ~/.fake/state")
    assert again.returncode == 0, again.stderr
    assert b"again conversation-7" in again.stdout and b"kept" in again.stdout
    assert boxes(ask) == before, "its sandbox was gone, and is again"


def test_servers_of_the_project_need_trust(cli: Cli, project: Path) -> None:
    (project / ".mcp.json").write_text("{}")
    done = cli("agent", "run", NAME, "true")
    assert b".mcp.json is not trusted" in done.stderr and done.returncode == 0
    assert cli("trust", ".mcp.json").returncode == 0
    assert b"not trusted" not in cli("agent", "run", NAME, "true").stderr
    # A project's file that gives the agent more is refused, as everywhere.
    (project / "agentkernel.toml").write_text(f'[agents.{NAME}]\nallow = ["evil.example"]\n')
    done = cli("agent", "run", NAME, "true")
    assert done.returncode == 125 and b"evil.example" in done.stderr
    assert cli("run", "--", "true").returncode == 0, "it has no effect there"


def test_worktrees_and_several_at_once(cli: Cli, ask: Json, project: Path) -> None:
    words = ("agent", "run", NAME, "--keep", "--worktree", "side", "echo side > file")
    done = cli(*words)
    tree = project.parent / "project.worktrees" / "side"
    assert done.returncode == 0 and b"new worktree" in done.stderr, done.stderr
    assert (tree / "file").read_text() == "one\n"
    assert cli("agent", "run", NAME, "--keep", "echo main > file").returncode == 0
    by_place = {place: sessions(ask, place)[0] for place in (project, tree)}
    assert len({session["sandbox"] for session in by_place.values()}) == 2
    for place, session in by_place.items():
        assert cli("agent", "apply", session["id"]).returncode == 0
        assert (place / "file").read_text() == ("main\n" if place == project else "side\n")
        assert cli("sandbox", "remove", session["sandbox"]).returncode == 0
    assert git(tree, "status", "--porcelain", "--branch") == "## side\n M file\n"


def test_five_at_once_do_not_see_each_other(cli: Cli, ask: Json, project: Path) -> None:
    """All of them change the same line, and a file of their own; then all are applied."""
    task = "ls; cat file; echo {0} > file; echo {0} > own-{0}"
    running = [
        subprocess.Popen(
            [*COMMAND, "agent", "run", NAME, "--keep", "--name", f"five-{n}", task.format(n)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n in range(5)
    ]  # fmt: skip
    try:
        for process in running:
            out, told = process.communicate(timeout=50)
            assert process.returncode == 0, told
            assert out.decode().split("\n")[:2] == ["file", "one"], "nothing of the others"
    finally:
        for process in running:
            process.kill()
            process.wait()
    found = {session["sandbox_name"]: session["id"] for session in sessions(ask, project)}
    codes = [cli("agent", "apply", found[f"five-{n}"]) for n in range(5)]
    assert [done.returncode for done in codes] == [0, 1, 1, 1, 1]
    assert all(b"conflict: file" in done.stderr for done in codes[1:])
    # Nothing is lost: neither what was applied, nor what was not.
    assert (project / "file").read_text() == "0\n"
    assert [(project / f"own-{n}").read_text() for n in range(5)] == [f"{n}\n" for n in range(5)]
    for n in range(1, 5):
        assert f"+{n}".encode() in cli("agent", "diff", found[f"five-{n}"]).stdout
    done = cli("agent", "apply", "--conflicts", "markers", found["five-4"])
    text = (project / "file").read_text()
    assert "<<<<<<<" in text and "0\n" in text and "4\n" in text, done.stderr
    for n in range(5):
        assert cli("sandbox", "remove", f"five-{n}").returncode == 0


def test_on_a_terminal(ask: Json, project: Path) -> None:
    with OnTerminal("agent", "run", NAME, cwd=project) as terminal:
        terminal.expect("ready xterm-256color")
        terminal.expect("size 24 80")
        terminal.resize(30, 100)
        terminal.expect("size 30 100")
        terminal.send("\x1b[200~pasted\x1b[201~\r")
        terminal.expect(r"heard '\\x1b\[200~pasted\\x1b\[201~\\n'")
        terminal.send("\x03")
        terminal.expect("interrupted")
        terminal.send("write file two\r")
        terminal.expect("written")
        terminal.send("modes\r")
        terminal.expect("set")
        terminal.send("quit 7\r")
        terminal.expect(r"\[d\]iff, \[a\]pply")
        assert b"\x1b[?1049l" in terminal.seen and b"\x1b[?2004l" in terminal.seen
        assert b"]52;" not in terminal.seen, "no clipboard"
        terminal.send("d\r")
        terminal.expect(r"\+two")
        terminal.send("a\r")
        assert terminal.end() == 7 and terminal.is_restored()
    assert (project / "file").read_text() == "two\n"
    (session,) = sessions(ask, project)
    assert session["mode"] == "interactive" and session["sandbox"] not in boxes(ask)


def test_leaving_a_terminal_and_coming_back(cli: Cli, ask: Json, project: Path) -> None:
    with OnTerminal("agent", "run", NAME, cwd=project) as terminal:
        terminal.expect("size 24 80")
        terminal.send("\x1c\x1c")
        terminal.expect("it goes on; back to it: agentkernel agent attach ([a-z0-9]+)")
        assert terminal.end() == 0 and terminal.is_restored()
    (session,) = sessions(ask, project)
    assert session["state"] == "running"
    with OnTerminal("agent", "attach", session["id"], cwd=project, rows=31) as terminal:
        terminal.expect("size 31 80")
        # The daemon is started anew meanwhile.
        os.kill(ask("daemon", "status")["pid"], signal.SIGKILL)
        terminal.expect("the daemon went away")
        terminal.expect("size 31 80")
        terminal.send("hello\r")
        terminal.expect(r"heard 'hello\\n'")
        terminal.send("write file three\r")
        terminal.expect("written")
        terminal.send("quit 0\r")
        terminal.expect(r"\[d\]iff, \[a\]pply")
        terminal.send("k\r")
        terminal.expect("kept: fake-")
        assert terminal.end() == 0 and terminal.is_restored()
    assert ask("sandbox", "info", session["sandbox"])["state"] == "stopped"
    with OnTerminal("replay", "--idle", "10ms", session["id"], cwd=project) as terminal:
        terminal.expect("ready xterm-256color")
        terminal.expect("heard 'hello")
        assert terminal.end() == 0 and terminal.is_restored()
    target = project.parent / "session.cast"
    assert cli("replay", "-o", str(target), session["id"]).returncode == 0
    assert json.loads(target.read_text().split("\n")[0])["version"] == 2
    assert cli("sandbox", "remove", session["sandbox"]).returncode == 0
