"""`[agents.NAME]` and `[mcp.NAME]`: what they may hold, whose word counts, what needs trust."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkernel.config import trust
from agentkernel.config.finding import is_foreign
from agentkernel.config.foreign import mcp_servers
from agentkernel.config.reading import ConfigFile, parse, read_foreign
from agentkernel.config.resolving import resolve
from agentkernel.config.widening import widenings
from agentkernel.errors import InvalidInputError

from .conftest import Write

OWN = """\
[agents.claude]
model = "small"
allow = ["docs.example.org"]
mcp = ["notes"]

[mcp.notes]
command = ["notes-server", "--stdio"]
env = { LEVEL = "info" }
"""


def user(text: str = OWN) -> ConfigFile:
    return parse(text.encode(), "/home/u/config.toml", "user", owner=0)


def wider(project: Write, text: str, agent: str | None = "claude") -> list[str]:
    return [entry.key for entry in widenings(project(text), user(), {}, agent=agent)]


def test_the_projects_word_stands_in_place_of_the_users_key_by_key(project: Write) -> None:
    file = project('[agents.claude]\nmodel = "big"\nsetup = ["npm ci"]\n')
    found = resolve({}, file, user()).agents["claude"]
    assert (found["model"].value, found["model"].origin) == ("big", "project")
    assert found["setup"].value == ("npm ci",)
    assert (found["allow"].value, found["allow"].origin) == (("docs.example.org",), "user")


@pytest.mark.parametrize(
    "line",
    [
        'allow = ["evil.example"]', 'allow = ["docs.example.org", "evil.example"]',
        'presets = ["public"]', 'mcp = ["notes", "other"]',
    ],
)  # fmt: skip
def test_what_reaches_more_needs_trust(project: Write, line: str) -> None:
    key = f"agents.claude.{line.partition(' ')[0]}"
    text = f"[agents.claude]\n{line}\n"
    assert wider(project, text) == [key]
    assert wider(project, text, agent="") == [key]
    # Said of an agent that does not run, it has no effect.
    assert wider(project, text, agent="codex") == []
    assert wider(project, text, agent=None) == []


def test_a_setup_of_the_projects_needs_trust(project: Write) -> None:
    """It is run where more can be reached than the agent does."""
    text = '[agents.claude]\nsetup = ["npm ci"]\n'
    assert wider(project, text) == ["agents.claude.setup"]
    assert wider(project, text, agent="codex") == []
    assert widenings(project(text), user(text), {}, agent="claude") == []


def test_a_server_of_the_projects_needs_trust(project: Write) -> None:
    text = '[mcp.notes]\nurl = "http://127.0.0.1:9/mcp"\n'
    assert wider(project, text) == ["mcp.notes"]
    assert wider(project, text, agent=None) == []


@pytest.mark.parametrize(
    "line",
    ['model = "big"', 'allow = ["docs.example.org"]', "allow = []", "mcp = []", "setup = []",
     "attended = true", 'presets = ["none"]'],
)  # fmt: skip
def test_what_narrows_does_not(project: Write, line: str) -> None:
    assert wider(project, f"[agents.claude]\n{line}\n") == []


def test_not_asking_where_the_user_wants_to_be_asked_needs_trust(project: Write) -> None:
    file = project("[agents.claude]\nattended = false\n")
    asks = user("[agents.claude]\nattended = true\n")
    assert [e.key for e in widenings(file, asks, {}, agent="claude")] == ["agents.claude.attended"]
    assert widenings(file, user(), {}, agent="claude") == []


@pytest.mark.parametrize(
    "text",
    [
        "[agents.Claude]\n", "[agents.claude]\nmode = 1\n", "[agents.claude]\nmodel = 1\n",
        '[agents.claude]\nmcp = ["a b"]\n', "[mcp.x]\n", '[mcp.x]\nurl = "ftp://x"\n',
        '[mcp.x]\ncommand = ["a"]\nurl = "http://x"\n', '[mcp."a b"]\ncommand = ["a"]\n',
        '[mcp.x]\nurl = "http://x"\nenv = { A = "b" }\n', "agents = 1\n",
    ],
)  # fmt: skip
def test_what_they_may_not_hold(project: Write, text: str) -> None:
    with pytest.raises(InvalidInputError):
        project(text)


def test_an_agents_own_file_is_trusted_by_place_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {}}')
    file, _ = read_foreign(str(path))
    assert not trust.is_trusted(file)
    trust.trust(file)
    assert trust.is_trusted(read_foreign(str(path))[0])
    path.write_text('{"mcpServers": {} }')
    assert not trust.is_trusted(read_foreign(str(path))[0])


def test_which_files_these_are() -> None:
    assert is_foreign(".mcp.json") and is_foreign("/a/.gemini/settings.json")
    assert not is_foreign("agentkernel.toml") and not is_foreign("/a/x.mcp.json")


def test_servers_of_such_a_file_are_shown_and_never_break() -> None:
    stdio = {"command": "npx", "args": ["-y", "server"]}
    body = {"mcpServers": {"a": stdio, "b": {"url": "https://x"}, "c": 1}}
    assert mcp_servers(json.dumps(body).encode(), ".mcp.json") == {
        "a": "npx -y server",
        "b": "https://x",
    }
    commented = b'{// words\n"mcp": {"a": {"command": ["x", "http://y"]}}}'
    assert mcp_servers(commented, "opencode.jsonc") == {"a": "x http://y"}
    toml = b'[mcp_servers.a]\ncommand = "x"\nargs = ["y"]\n'
    assert mcp_servers(toml, ".codex/config.toml") == {"a": "x y"}
    for data in (b"", b"\xff", b"[" * 9999, b"[]", b'{"mcpServers": []}', b"1"):
        assert mcp_servers(data, ".mcp.json") == {}
