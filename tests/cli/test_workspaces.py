"""A project in a sandbox, and its changes, as a user has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("daemon_dir")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "file").write_text("one\n")
    (path / ".env").write_text("TOKEN=1\n")
    return path


def test_a_run_in_the_directory_one_is_in(cli: Cli, project: Path) -> None:
    done = cli("run", "--workspace", ".", "--", "sh", "-c", "ls -A; echo two >> file", cwd=project)
    assert (done.returncode, done.stdout) == (0, b"file\n"), done.stderr
    assert (project / "file").read_text() == "one\n"
    done = cli("run", "--workspace", ".:ro", "--workspace-secrets", "--", "ls", "-A", cwd=project)
    assert done.stdout == b".env\nfile\n"
    done = cli("run", "--workspace", "/", "--", "true")
    assert done.returncode == 125 and b"all of this machine" in done.stderr


def test_diff(cli: Cli, project: Path) -> None:
    done = cli("sandbox", "create", "diffed", "--workspace", str(project))
    assert done.returncode == 0, done.stderr
    script = "echo two >> file; printf 'a\\033[31m\\n' > new; mkdir empty"
    assert cli("exec", "diffed", "--", "sh", "-c", script).returncode == 0
    done = cli("diff", "diffed")
    assert done.returncode == 0 and b"+two\n" in done.stdout and b"\x1b" in done.stdout
    assert b"empty: added, a directory" in done.stderr
    done = cli("diff", "--stat", "diffed")
    assert done.stdout.decode().splitlines() == [
        "A  empty",
        "M  file  +1 -0",
        "A  new  +1 -0",
        "3 changed, +2 -0 lines",
    ]
    told = json.loads(cli("diff", "--json", "diffed").stdout)
    assert [change["path"] for change in told["changes"]] == ["empty", "file", "new"]
    assert cli("sandbox", "remove", "diffed").returncode == 0
    assert (project / "file").read_text() == "one\n"


def test_apply_and_discard(cli: Cli, project: Path) -> None:
    assert cli("sandbox", "create", "taken", "--workspace", str(project)).returncode == 0
    script = "echo two >> file; echo new > new; echo x > .envrc"
    assert cli("exec", "taken", "--", "sh", "-c", script).returncode == 0
    done = cli("apply", "taken", "new")
    assert (done.returncode, done.stdout) == (0, b"A  new\n"), done.stderr
    done = cli("diff", "--stat", "taken")
    assert b"A! .envrc  +1 -0\n" in done.stdout and b".envrc: held back from apply" in done.stderr
    told = json.loads(cli("diff", "--json", "taken").stdout)["changes"]
    assert {change["path"]: change["held_back"] for change in told}.keys() == {".envrc", "file"}
    assert [bool(change["held_back"]) for change in told] == [True, False]
    (project / "file").write_text("mine\n")
    done = cli("apply", "taken")
    assert done.returncode == 1 and b"conflict: file" in done.stderr
    assert b"held: .envrc" in done.stderr and b"--allow-risky" in done.stderr
    assert (project / "file").read_text() == "mine\n" and (project / "new").exists()
    assert cli("discard", "taken").returncode == 125
    assert cli("sandbox", "stop", "taken").returncode == 0
    assert cli("discard", "taken").returncode == 0
    assert json.loads(cli("diff", "--json", "taken").stdout)["changes"] == []
    assert cli("sandbox", "remove", "taken").returncode == 0
