"""`config set` changes one key and leaves every other byte."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from agentkernel.config.editing import set_key
from agentkernel.errors import InvalidInputError


@pytest.fixture
def path(home: Path) -> Path:
    return home / ".config" / "agentkernel" / "config.toml"


def test_a_new_file(path: Path) -> None:
    path.parent.rmdir()
    set_key(str(path), "user", "limits.memory", "2G")
    assert path.read_text() == '[limits]\nmemory = "2G"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_comments_and_order_stay(path: Path) -> None:
    path.write_text("# mine\n[limits]\n# few\npids = 5  # five\n\n[env]\nA = 'b'\n")
    set_key(str(path), "user", "limits.pids", "6")
    set_key(str(path), "user", "limits.cpus", "0.5")
    set_key(str(path), "user", "env.B", 'x "y" \\')
    set_key(str(path), "user", "sandbox.nested_userns", "false")
    assert path.read_text() == (
        "# mine\n[limits]\n# few\npids = 6\ncpus = 0.5\n\n[env]\nA = 'b'\n"
        'B = "x \\"y\\" \\\\"\n\n[sandbox]\nnested_userns = false\n'
    )
    set_key(str(path), "user", "limits.pids", None)
    assert "pids" not in tomllib.loads(path.read_text())["limits"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("limits.memory", "lots"), ("limits.nothing", "1"), ("nothing", "1"), ("sandbox.name", "x"),
     ("env.A", "a\nb"), ("env", "x")],
)  # fmt: skip
def test_a_wrong_value_changes_nothing(path: Path, name: str, value: str) -> None:
    path.write_text("[limits]\npids = 5\n")
    with pytest.raises(InvalidInputError):
        set_key(str(path), "user", name, value)
    assert path.read_text() == "[limits]\npids = 5\n"


def test_unusual_forms_are_left_to_people(path: Path) -> None:
    text = "limits = { pids = 5 }\n"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        set_key(str(path), "user", "limits.pids", "6")
    assert path.read_text() == text


def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    path.symlink_to(real)
    set_key(str(path), "user", "limits.pids", "6")
    assert path.is_symlink() and "pids = 6" in real.read_text()
