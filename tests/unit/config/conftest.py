"""A project, a home and a state directory that belong to one test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.config.reading import ConfigFile, read_file

Write = Callable[[str], ConfigFile]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    (path / ".config" / "agentkernel").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path / "state"))
    return path


@pytest.fixture
def directory(home: Path) -> Path:
    """The project's directory: a git repository below the home."""
    path = home / "project"
    (path / ".git").mkdir(parents=True)
    return path


@pytest.fixture
def project(directory: Path) -> Write:
    """Writes the project's file and reads it."""

    def write(text: str) -> ConfigFile:
        path = directory / "agentkernel.toml"
        path.write_text(text)
        return read_file(str(path), "project")

    return write


@pytest.fixture
def user(home: Path) -> Write:
    def write(text: str) -> ConfigFile:
        path = home / ".config" / "agentkernel" / "config.toml"
        path.write_text(text)
        return read_file(str(path), "user")

    return write
