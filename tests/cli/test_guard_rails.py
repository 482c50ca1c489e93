"""What came out of a sandbox widens nothing: files that decide what later sandboxes may do are held
back, and once they are let through, untrusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("daemon_dir")
WIDER = '[network]\npresets = ["public"]\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "agentkernel.toml").write_text('[network]\npresets = ["none"]\n')
    monkeypatch.chdir(path)
    return path


def test_a_projects_file_that_came_back_is_untrusted(cli: Cli, project: Path) -> None:
    config = project / "agentkernel.toml"
    assert cli("trust").returncode == 0
    assert cli("sandbox", "create", "rails", "--workspace", ".").returncode == 0
    script = f"printf '{WIDER}' > agentkernel.toml; echo '{{}}' > .mcp.json"
    assert cli("exec", "rails", "--", "sh", "-c", script).returncode == 0
    done = cli("apply", "rails")
    assert done.returncode == 1 and b"held: agentkernel.toml" in done.stderr
    assert b"held: .mcp.json" in done.stderr and not (project / ".mcp.json").exists()
    assert config.read_text() != WIDER
    # Somebody lets it through: now it is there, and has no effect.
    assert cli("apply", "--allow-risky", "rails").returncode == 0
    assert config.read_text() == WIDER
    done = cli("run", "--json", "--", "true")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 125 and error["code"] == "policy_denied"
    assert [entry["key"] for entry in error["details"]["widens"]] == ["network.presets"]
    # The control: the user's own word.
    assert cli("trust").returncode == 0
    assert cli("run", "--", "true").returncode == 0
    assert cli("sandbox", "remove", "rails").returncode == 0


def test_trust_of_an_agents_own_file(cli: Cli, project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": {"x": {"command": "evil\\u001b[2J", "args": ["a"]}}}')
    done = cli("trust", ".mcp.json")
    assert done.returncode == 0 and b"MCP server x: evil" in done.stdout, done.stderr
    assert b"\x1b" not in done.stdout
    assert cli("trust", "--json", ".mcp.json").stdout.startswith(b'{"file"')
    (entry,) = [
        entry
        for entry in json.loads(cli("trust", "--list", "--json").stdout)["files"]
        if entry["file"] == str(path)
    ]
    assert entry["state"] == "trusted"
    path.write_text("{}")
    assert b"changed" in cli("trust", "--list").stdout
    assert cli("trust", "--remove", ".mcp.json").returncode == 0
    assert str(path).encode() not in cli("trust", "--list").stdout
