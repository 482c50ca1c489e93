"""`agent login`, `status` and `logout`, as people use them: with a daemon, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..server.daemon_process import Daemon
from .scripted import ScriptedModels

SECONDS = 60.0
KEY = "sk-ant-api03-0123456789abcdef0123456789"
AGENT = """
name = "fake"
title = "Fake"
version = "1"
[command]
interactive = ["true"]
[login]
command = ["sh", "-c", 'printf "code: "; read -r code; mkdir ~/.fake; echo "$code" >~/.fake/auth']
hosts = ["auth.openai.com"]
[login.oauth]
file = "~/.fake/auth"
access = "access"
refresh_token = "refresh"
hosts = ["api.openai.com"]
token_url = "https://auth.openai.com/oauth/token"
"""


class Commands(Daemon):
    """A daemon whose model hosts are scripted, and commands of its user."""

    def __init__(self, place: Path, models: ScriptedModels) -> None:
        self.home = place / "home"
        self.home.mkdir()
        self.config = place / "config"
        models.configure(self.config)
        (self.config / "agentkernel" / "agents").mkdir()
        (self.config / "agentkernel" / "agents" / "fake.toml").write_text(AGENT)
        state = place / "state"
        state.mkdir(mode=0o700)
        super().__init__(state)

    def environment(self, **more: str) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        return {
            **known,
            "HOME": str(self.home),
            "AGENTKERNEL_STATE_DIR": str(self.state_dir),
            "XDG_CONFIG_HOME": str(self.config),
            **more,
        }

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agentkernel", "serve", "--foreground", *arguments],
                env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )  # fmt: skip

    def run(self, *words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentkernel", "agent", *words], input=stdin,
            env=self.environment(**more), capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip

    def shown(self, *words: str, stdin: str = "", **more: str) -> dict[str, Any]:
        done = self.run(*words, "--json", stdin=stdin, **more)
        assert done.returncode == 0, done.stderr
        body: dict[str, Any] = json.loads(done.stdout)
        return body


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModels]:
    models = ScriptedModels(tmp_path_factory.mktemp("models"))
    yield models
    models.close()


@pytest.fixture(scope="module")
def daemon(models: ScriptedModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    daemon = Commands(tmp_path_factory.mktemp("commands"), models)
    daemon.start()
    yield daemon
    assert daemon.terminate() == 0
    assert "Traceback" not in daemon.log()
    daemon.close()


def test_a_key_is_given_on_stdin_and_shown_by_its_name(daemon: Commands) -> None:
    assert daemon.shown("status", "claude")["kind"] == "none"
    done = daemon.run("login", "claude", "--api-key", stdin=KEY + "\n")
    assert done.returncode == 0, done.stderr
    assert "ANTHROPIC_API_KEY" in done.stdout
    assert "nothing: a placeholder stands for it" in done.stdout
    assert KEY not in done.stdout + done.stderr
    table = daemon.run("status").stdout
    assert "claude" in table
    assert "ANTHROPIC_API_KEY" in table
    gone = daemon.run("logout", "claude")
    assert gone.returncode == 0, gone.stderr
    assert "the provider was not told" in gone.stderr
    assert daemon.shown("status", "claude")["kind"] == "none"
    assert daemon.run("logout", "claude").returncode != 0


def test_a_key_is_taken_from_its_variable(daemon: Commands) -> None:
    words = ("login", "aider", "--from-env", "--key", "OPENROUTER_API_KEY")
    missing = daemon.run(*words)
    assert missing.returncode != 0
    assert "OPENROUTER_API_KEY" in missing.stderr
    assert daemon.shown(*words, OPENROUTER_API_KEY=KEY)["secrets"] == ["OPENROUTER_API_KEY"]
    daemon.shown("logout", "aider")


def test_the_machines_own_login_is_taken_over(daemon: Commands, models: ScriptedModels) -> None:
    absent = daemon.run("login", "claude", "--import")
    assert absent.returncode != 0
    assert "not logged in on this machine" in absent.stderr
    given = models.tokens.issue("anthropic")
    body = {
        "accessToken": given["access_token"], "refreshToken": given["refresh_token"],
        "expiresAt": int((time.time() + 3600) * 1000), "subscriptionType": "max", "scopes": [],
    }  # fmt: skip
    file = daemon.home / ".claude" / ".credentials.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"claudeAiOauth": body}))
    done = daemon.run("login", "claude", "--import")
    assert done.returncode == 0, done.stderr
    assert "may be logged out" in done.stderr
    before = daemon.shown("status", "claude")
    assert (before["kind"], before["account"]) == ("oauth", "max")
    for owner, kind in (("token:ci", "none"), ("local", "oauth")):
        _, seen = daemon.request(
            "GET", "/v1/agents/claude/login", headers={"Agentkernel-Owner": owner}
        )
        assert seen["kind"] == kind
    after = daemon.shown("status", "claude", "--refresh")
    assert after["refreshed_at"] is not None
    assert len(models.tokens.asked) == 1
    models.tokens.error = (400, "invalid_grant")
    ended = daemon.run("status", "claude", "--refresh")
    assert ended.returncode != 0
    assert "agent login claude" in ended.stderr
    assert "log in again" in daemon.run("status", "claude").stdout
    models.tokens.error = None
    everything = done.stdout + done.stderr + json.dumps([before, after]) + ended.stderr
    for secret in (given["access_token"], given["refresh_token"], *models.tokens.access):
        assert secret not in everything
    daemon.shown("logout", "claude")


def test_what_is_no_login_is_refused(daemon: Commands, tmp_path: Path) -> None:
    file = tmp_path / "login"
    file.write_text("{}")
    assert (
        "no claudeAiOauth.accessToken"
        in daemon.run("login", "claude", "--import", str(file)).stderr
    )
    file.write_text("x" * 100_000)
    assert "too long" in daemon.run("login", "claude", "--import", str(file)).stderr
    assert daemon.run("login", "nosuch", "--import").returncode != 0
    assert "API key" in daemon.run("login", "aider").stderr
    assert "needs a terminal" in daemon.run("login", "fake").stderr


def test_an_agents_own_login_on_a_terminal(daemon: Commands) -> None:
    """In a sandbox of its own, which is gone then."""
    login = {"access": "access-token-0123456789", "refresh": "refresh-token-0123456789"}
    said, code = _on_a_terminal(daemon, json.dumps(login) + "\n", "login", "fake")
    assert code == 0, said
    assert "the login is inside the sandbox" in said
    status = daemon.shown("status", "fake")
    assert (status["kind"], status["refreshable"]) == ("oauth", True)
    listed = subprocess.run(
        [sys.executable, "-m", "agentkernel", "sandbox", "list", "--json"],
        env=daemon.environment(), capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    assert json.loads(listed.stdout)["sandboxes"] == []
    daemon.shown("logout", "fake")


def _on_a_terminal(daemon: Commands, typed: str, *words: str) -> tuple[str, int]:
    """What it showed when it was typed this at the question, and how it ended."""
    pid, terminal = pty.fork()
    if not pid:
        command = [sys.executable, "-m", "agentkernel", "agent", *words]
        os.execve(sys.executable, command, daemon.environment(TERM="xterm"))
    said = b""
    deadline = time.monotonic() + SECONDS
    asked = False
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if not ready:
            continue
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            break
        if not piece:
            break
        said += piece
        if b"code: " in said and not asked:
            asked = True
            os.write(terminal, typed.encode())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return said.decode("utf-8", "replace"), code
