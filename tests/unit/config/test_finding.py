"""Which file is found, and which is not looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.config.finding import project_file, user_file


def test_upwards_to_the_git_root(home: Path, directory: Path) -> None:
    inner = directory / "a" / "b"
    inner.mkdir(parents=True)
    (home / "agentkernel.toml").touch()
    assert project_file(str(inner)) is None, "what lies above the repository is not its"
    (directory / "agentkernel.toml").touch()
    assert project_file(str(inner)) == str(directory / "agentkernel.toml")
    (inner / "agentkernel.toml").touch()
    assert project_file(str(inner)) == str(inner / "agentkernel.toml")


def test_upwards_to_the_home(home: Path) -> None:
    inner = home / "notes" / "deep"
    inner.mkdir(parents=True)
    (home.parent / "agentkernel.toml").touch()
    assert project_file(str(inner)) is None
    (home / "agentkernel.toml").touch()
    assert project_file(str(inner)) == str(home / "agentkernel.toml")


def test_elsewhere_only_the_directory_itself(tmp_path: Path) -> None:
    inner = tmp_path / "shared" / "x"
    inner.mkdir(parents=True)
    (tmp_path / "shared" / "agentkernel.toml").touch()
    assert project_file(str(inner)) is None
    assert project_file(str(tmp_path / "shared")) is not None, "control: there it is found"


def test_a_worktree_has_a_git_file(home: Path) -> None:
    tree = home / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / ".git").write_text("gitdir: /elsewhere\n")
    (home / "agentkernel.toml").touch()
    assert project_file(str(tree / "sub")) is None


def test_the_users_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_file() == str(home / ".config/agentkernel/config.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/mine")
    assert user_file() == "/etc/mine/agentkernel/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert user_file() == str(home / ".config/agentkernel/config.toml")
