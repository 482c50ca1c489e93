"""Agents on the command line and in the SDK: listed, installed, updated, removed, over a daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkernel.client._async.host import AsyncHost
from agentkernel.client._async.transport import AsyncTransport
from agentkernel.client._sync.host import Host
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import AgentInstallError, NotFoundError
from tests.cli.conftest import Cli, Json

pytestmark = pytest.mark.usefixtures("daemon_dir")


def text(version: str, step: str) -> str:
    return f"""
name = "tiny"
title = "Tiny"
version = "{version}"
[install]
steps = [["sh", "-euc", '''{step}''', "install", "{{kit}}", "{{version}}"]]
check = ["sh", "-c", "cat {{kit}}/version"]
[command]
interactive = ["{{kit}}/tiny"]
headless = ["{{kit}}/tiny", "{{task}}"]
"""


@pytest.fixture
def file(daemon_state: Path) -> Iterator[Path]:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "agentkernel" / "agents" / "tiny.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text("1.0", 'echo making $2; echo $2 > "$1/version"'))
    yield path
    path.unlink()


def test_from_the_list_to_removal(cli: Cli, ask: Json, file: Path) -> None:
    (tiny,) = (one for one in ask("agent", "list") if one["name"] == "tiny")
    assert tiny["kit"] is None and tiny["own"] and tiny["modes"] == ["interactive", "headless"]
    assert {"aider", "claude", "codex", "gemini", "opencode"} <= {
        one["name"] for one in ask("agent", "list")
    }
    done = cli("agent", "install", "tiny")
    assert (done.returncode, done.stdout) == (0, b"tiny\n"), done.stderr
    assert b"[1/2] sh -euc" in done.stderr and b"making 1.0\n" in done.stderr
    shown = cli("agent", "show", "tiny").stdout.decode()
    assert "installed    1.0," in shown and "file         your own" in shown
    assert "yes" in cli("agent", "list").stdout.decode().split("tiny ")[1].split("\n")[0]

    done = cli("agent", "update", "tiny", "--version", "2.0-rc1", "--json")
    *events, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["event"] for one in events if one["event"] != "output"] == [
        "started", "step", "done", "step", "done",
    ]  # fmt: skip
    assert [kit["version"] for kit in last["updated"]] == ["2.0-rc1"] and last["failed"] == []
    info = ask("agent", "show", "tiny")
    assert (info["version"], info["pinned"], info["older"]) == ("2.0-rc1", "1.0", [])
    assert "chosen; its file says 1.0" in cli("agent", "show", "tiny").stdout.decode()
    # All that are installed, each to what is pinned.
    file.write_text(text("3.0", 'echo $2 > "$1/version"'))
    done = cli("agent", "update", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"tiny\n", b"")
    assert ask("agent", "show", "tiny")["kit"]["version"] == "3.0"
    assert cli("agent", "remove", "tiny").stdout == b"tiny\n"
    done = cli("agent", "remove", "tiny")
    assert done.returncode == 125 and b"tiny is not installed" in done.stderr


def test_what_nobody_has_tried_is_said(cli: Cli, ask: Json) -> None:
    lines = {line.split()[0]: line for line in cli("agent", "list").stdout.decode().splitlines()}
    assert "(not tested)" in lines["goose"] and "(not tested)" not in lines["claude"]
    assert "Not tested here" in cli("agent", "show", "goose").stdout.decode()
    assert {one["name"]: one["tested"] for one in ask("agent", "list")}["claude"]


def test_what_went_wrong_is_told(cli: Cli, file: Path) -> None:
    file.write_text(text("1.0", "echo first; echo E404 not found >&2; exit 7"))
    done = cli("agent", "install", "-q", "tiny", "nobody")
    error = done.stderr.decode()
    assert done.returncode == 125 and done.stdout == b""
    assert "  first\n  E404 not found\n" in error
    assert "tiny can't be installed: step 1 of 1: the command ended with status 7" in error
    assert "no agent 'nobody'" in error and "claude, codex" in error
    file.write_text("name = 5")
    listed = cli("agent", "list")
    assert listed.returncode == 0 and b"broken file" in listed.stdout
    assert b"tiny.toml" in listed.stderr
    done = cli("agent", "update", "--version", "1.0")
    assert done.returncode == 125 and b"--version is that of one agent" in done.stderr


async def test_by_the_async_sdk(daemon_state: Path, file: Path) -> None:
    transport = AsyncTransport(str(daemon_state))
    agents = AsyncHost(transport=transport).agents
    told: list[str] = []
    made = await agents.install("tiny", progress=lambda kind, body: told.append(kind))
    assert made["version"] == "1.0" and made["current"] and "output" in told
    assert [one["name"] for one in await agents.list() if one["kit"]] == ["tiny"]
    assert (await agents.get("tiny"))["definition"]["title"] == "Tiny"
    assert (await agents.update("tiny", version="1.1"))["version"] == "1.1"
    await agents.remove("tiny")
    with pytest.raises(NotFoundError):
        await agents.get("nobody")
    transport.close()


def test_by_the_sdk(daemon_state: Path, file: Path) -> None:
    transport = Transport(str(daemon_state))
    agents = Host(transport=transport).agents
    file.write_text(text("1.0", "exit 1"))
    with pytest.raises(AgentInstallError) as caught:
        agents.install("tiny")
    assert caught.value.details["exit_code"] == 1
    assert [one for one in agents.list() if one["kit"] or one["older"]] == []
    transport.close()
