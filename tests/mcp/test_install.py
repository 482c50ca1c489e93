"""`agentkernel mcp install`: other people's files, changed without harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkernel.errors import AgentKernelError, ConflictError, InvalidInputError
from agentkernel.mcp import config_files, jsonc
from agentkernel.mcp.clients import CLIENTS
from agentkernel.mcp.install import install, server_words, uninstall

FILES = {
    "claude": ".claude.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
}
JSON = """\
// my settings
{
  "theme": "dark", // keep me
  "TABLE": {
    /* somebody else's */
    "other": {"command": "other", "args": []}
  },
  "last": [1, 2]
}
"""
TOML = """\
# my settings
model = "x"   # keep me

[mcp_servers.other]   # somebody else's
command = "other"
args = []

[profiles.a]
model = "y"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(client: str) -> str:
    return TOML if client == "codex" else JSON.replace("TABLE", CLIENTS[client].table)


def entries(client: str, path: Path) -> dict[str, Any]:
    text = path.read_text()
    body = tomllib.loads(text) if client == "codex" else jsonc.parse(text)
    found: dict[str, Any] = body[CLIENTS[client].table]
    return found


EVERY = pytest.mark.parametrize("client", sorted(CLIENTS))


@EVERY
def test_into_nothing(client: str, home: Path) -> None:
    done = install(client)
    path = home / FILES[client]
    assert (done.path, done.changed, done.backup) == (str(path), True, None)
    entry = entries(client, path)["agentkernel"]
    command = entry["command"]
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert words == [*server_words(), "mcp"] and os.path.isabs(words[0])
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    again = install(client)
    assert not again.changed and path.read_bytes() == before
    assert not (path.parent / (path.name + config_files.BACKUP)).exists()


@EVERY
def test_among_others(client: str, home: Path) -> None:
    path = home / FILES[client]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(written(client))
    path.chmod(0o640)
    done = install(client, flags=["--memory", "1G"])
    assert done.changed and done.backup
    assert Path(done.backup).read_text() == written(client)
    assert path.stat().st_mode & 0o777 == 0o640 == Path(done.backup).stat().st_mode & 0o777
    text = path.read_text()
    for kept in ("my settings", "keep me", "somebody else's"):
        assert kept in text
    assert set(entries(client, path)) == {"other", "agentkernel"}
    assert "1G" in str(entries(client, path)["agentkernel"])
    # Every line that was there is there, but for a comma at its end.
    left = [line.replace(",", "") for line in text.splitlines()]
    assert all(line.replace(",", "") in left for line in written(client).splitlines())

    twice = install(client, flags=["--memory", "1G"])
    assert not twice.changed and path.read_text() == text
    assert Path(done.backup).read_text() == written(client), "the copy is still the original"
    assert uninstall(client).changed
    assert path.read_text() == written(client)
    assert not uninstall(client).changed


@EVERY
def test_what_somebody_added_to_our_entry_stays(client: str, home: Path) -> None:
    install(client)
    path = home / FILES[client]
    if client == "codex":
        path.write_text(path.read_text() + "tool_timeout_sec = 300 # mine\n")
    else:
        table = CLIENTS[client].table
        path.write_text(
            jsonc.set_value(path.read_text(), (table, "agentkernel", "env"), {"A": "b"})
        )
    before = path.read_text()
    assert not install(client).changed
    install(client, flags=["--pids", "50"])
    entry = entries(client, path)["agentkernel"]
    assert "50" in str(entry)
    assert entry.get("env") == {"A": "b"} or entry.get("tool_timeout_sec") == 300
    install(client)
    assert path.read_text() == before


def test_an_entry_that_is_switched_off_stays_so(home: Path) -> None:
    install("opencode")
    path = home / FILES["opencode"]
    path.write_text(path.read_text().replace("true", "false"))
    assert not install("opencode").changed
    assert entries("opencode", path)["agentkernel"]["enabled"] is False


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude", '{"mcpServers": '),
        ("claude", '{"mcpServers": []}'),
        ("claude", "\x00"),
        ("gemini", "[1]"),
        ("opencode", "not json"),
        ("codex", "[mcp_servers"),
        ("codex", "mcp_servers = 5"),
        ("codex", "[mcp_servers]\nagentkernel = 1"),
    ],
)
def test_what_is_broken_is_left_alone(client: str, text: str, home: Path) -> None:
    path = home / FILES[client]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        install(client)
    assert caught.value.hint and str(path) in caught.value.message
    assert path.read_text() == text
    assert os.listdir(path.parent) == [path.name], "nothing else was made"


def test_bytes_that_are_no_text(home: Path) -> None:
    path = home / FILES["claude"]
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InvalidInputError):
        install("claude")
    assert path.read_bytes() == b'{"a": "\xff"}'


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { other = { command = "o" } } # inline\n',
        'mcp_servers.other.command = "o" # dotted\n',
        '[mcp_servers]\nother = { command = "o" } # mixed\n',
        '[other]\na = 1\n[mcp_servers.z]\ncommand = "z"\n[last]\nb = 2\n',
    ],
)
def test_toml_however_it_is_written(text: str, home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir()
    path.write_text(text)
    install("codex")
    after = path.read_text()
    expected = tomllib.loads(text)
    expected["mcp_servers"]["agentkernel"] = {"command": server_words()[0], "args": [
        *server_words()[1:], "mcp"]}  # fmt: skip
    assert tomllib.loads(after) == expected
    assert after.count("#") == text.count("#")
    assert not install("codex").changed
    uninstall("codex")
    assert tomllib.loads(path.read_text()) == tomllib.loads(text)


def test_a_link_stays_a_link(home: Path) -> None:
    (home / "dotfiles").mkdir()
    real = home / "dotfiles" / "claude.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to("dotfiles/claude.json")
    done = install("claude")
    assert (home / ".claude.json").is_symlink() and done.path == str(real)
    assert "agentkernel" in real.read_text()
    assert (home / "dotfiles" / f"claude.json{config_files.BACKUP}").read_text() == "{}"


def test_a_link_to_nowhere_is_made(home: Path) -> None:
    (home / ".claude.json").symlink_to("new/claude.json")
    install("claude")
    assert "agentkernel" in (home / "new" / "claude.json").read_text()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file(make: Callable[[Path], None], home: Path) -> None:
    make(home / ".claude.json")
    with pytest.raises(AgentKernelError):
        install("claude")
    assert not (home / ".claude.json").is_file()


def test_a_file_that_changes_meanwhile_is_read_again(home: Path) -> None:
    path = home / ".claude.json"
    path.write_text('{"n": 0}')
    calls = 0

    def edit(text: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            path.write_text('{"n": 1, "more": true}')
        return jsonc.set_value(text, ("mine",), 1)

    config_files.change(str(path), edit)
    assert jsonc.parse(path.read_text()) == {"n": 1, "more": True, "mine": 1}

    def restless(text: str) -> str:
        path.write_text(text + " ")
        return text + "x"

    with pytest.raises(ConflictError):
        config_files.change(str(path), restless)
    assert sorted(os.listdir(home)) == [".claude.json", f".claude.json{config_files.BACKUP}"]


def test_other_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".config" / "opencode").mkdir(parents=True)
    jsonc_file = home / ".config" / "opencode" / "opencode.jsonc"
    jsonc_file.write_text("{} // mine")
    assert install("opencode").path == str(jsonc_file)
    assert "// mine" in jsonc_file.read_text()
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    assert install("codex").path == str(home / "elsewhere" / "config.toml")
    for client, name in (
        ("claude", ".mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
    ):
        assert install(client, scope="project").path == str(home / name)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "é", '"'])
def test_names_that_are_none(name: str, home: Path) -> None:
    with pytest.raises(InvalidInputError):
        install("claude", name=name)
    assert os.listdir(home) == []


def agentkernel(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentkernel", "mcp", *words],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_on_the_command_line(home: Path) -> None:
    printed = agentkernel("install", "claude", "--print", home=home)
    assert printed.returncode == 0 and os.listdir(home) == []
    entry = json.loads(printed.stdout)["mcpServers"]["agentkernel"]
    assert tomllib.loads(agentkernel("install", "codex", "--print", home=home).stdout)[
        "mcp_servers"
    ]
    done = agentkernel("install", "--json", "claude", home=home)
    body = json.loads(done.stdout)
    assert body["changed"] and body["entry"] == entry
    flags = agentkernel("install", "gemini", "--print", "--args", "--pids 9 -e A='b c'", home=home)
    assert json.loads(flags.stdout)["mcpServers"]["agentkernel"]["args"][-5:] == [
        "mcp", "--pids", "9", "-e", "A=b c",
    ]  # fmt: skip
    assert json.loads((home / ".claude.json").read_text())["mcpServers"] == {"agentkernel": entry}
    again = agentkernel("install", "claude", home=home)
    assert "is already in" in again.stdout
    wrong = agentkernel("install", "claude", "--args", "--memory much", home=home)
    assert wrong.returncode == 2
    assert agentkernel("uninstall", "claude", home=home).returncode == 0
    assert json.loads((home / ".claude.json").read_text()) == {"mcpServers": {}}
    (home / ".claude.json").write_text("{")
    broken = agentkernel("install", "--json", "claude", home=home)
    assert broken.returncode == 125
    assert json.loads(broken.stdout)["error"]["code"] == "invalid_input"


def test_what_is_installed_starts(home: Path) -> None:
    """The words work with nothing of this process's environment but what a client gives."""
    words = [*server_words(), "mcp", "--help"]
    done = subprocess.run(
        words,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **_source()},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "serves sandboxes" in " ".join(done.stdout.split()).lower()


def _source() -> dict[str, str]:
    """Where the package is, if it is not installed."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
