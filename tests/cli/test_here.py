"""The project that `run` is called in, sandboxes that are found again, and branches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Json


def git(project: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=True, capture_output=True, timeout=20, text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "outer" / "shop"
    (path / "src" / "deep").mkdir(parents=True)
    (path / "README").write_text("one\n")
    (path / "src" / "deep" / "file").write_text("deep\n")
    (path / ".gitignore").write_text("build/\n*.log\n")
    (path / "build").mkdir()
    (path / "build" / "out").write_text("made\n")
    (path / "build" / ".env").write_text("TOKEN=1\n")
    (path / "src" / "x.log").write_text("log\n")
    git(tmp_path, "init", "-q", "-b", "main", str(path))
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    return path


@pytest.fixture
def removed(cli: Cli) -> Iterator[list[str]]:
    """Names of sandboxes that go at the end."""
    names: list[str] = []
    yield names
    if names:
        assert cli("sandbox", "remove", *names).returncode == 0


def test_a_repository_is_there_copy_on_write(cli: Cli, project: Path) -> None:
    script = "pwd; cat file; echo two >> /workspace/README; ls /workspace"
    done = cli("run", "--", "sh", "-c", script, cwd=project / "src" / "deep")
    assert done.returncode == 0, done
    assert done.stdout.decode().split() == [
        "/workspace/src/deep", "deep", "README", "build", "src",
    ]  # fmt: skip
    said = done.stderr.decode()
    assert said.startswith(f"agentkernel: /workspace is {project}, copy-on-write")
    assert (project / "README").read_text() == "one\n"
    # Not a word, and nothing, if one says so.
    done = cli("run", "-q", "--", "ls", cwd=project)
    assert (done.returncode, done.stderr) == (0, b"") and b"README" in done.stdout
    done = cli("run", "--workspace", "none", "--", "pwd", cwd=project)
    assert (done.stdout, done.stderr) == (b"/\n", b"")


def test_what_is_no_project(
    cli: Cli, project: Path, daemon_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(where: Path) -> bool:
        done = cli("run", "--", "pwd", cwd=where)
        assert done.returncode == 0, done
        assert done.stdout in (b"/\n", b"/workspace\n")
        return done.stdout == b"/workspace\n"

    assert not shown(project.parent)
    (project.parent / "agentkernel.toml").write_text("")
    assert shown(project.parent)  # the control: beside such a file
    (project.parent / "agentkernel.toml").unlink()
    monkeypatch.setenv("HOME", str(project))
    assert not shown(project)
    monkeypatch.setenv("HOME", str(project / "src"))
    assert not shown(project)
    monkeypatch.setenv("HOME", str(project.parent))
    assert shown(project)
    (daemon_dir / ".git").mkdir(exist_ok=True)
    (daemon_dir / ".git" / "HEAD").write_text("")
    try:
        assert not shown(daemon_dir)
    finally:
        (daemon_dir / ".git" / "HEAD").unlink()
        (daemon_dir / ".git").rmdir()
    project.chmod(0o777)
    assert shown(project) == (os.geteuid() != 0)


def test_the_users_file_turns_it_off(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "agentkernel").mkdir(parents=True)
    file = tmp_path / "config" / "agentkernel" / "config.toml"
    file.write_text('[sandbox]\nworkspace = "none"\n')
    assert cli("run", "--", "pwd", cwd=project).stdout == b"/\n"
    file.write_text('[sandbox]\nworkspace_ignored = "hide"\n')
    assert cli("run", "-q", "--", "ls", cwd=project).stdout == b"README\nsrc\n"


def test_at_its_own_path(cli: Cli, project: Path) -> None:
    done = cli("run", "--workspace-path", "same", "--", "pwd", cwd=project / "src")
    assert done.stdout == f"{project}/src\n".encode(), done
    assert b"is at its own path, copy-on-write" in done.stderr
    done = cli("run", "-q", "--workspace-path", "/srv/x", "--", "pwd", cwd=project / "src")
    assert (done.stdout, done.stderr) == (b"/srv/x/src\n", b"")
    (project / "agentkernel.toml").write_text('[sandbox]\nworkspace_path = "same"\n')
    assert cli("run", "-q", "--", "pwd", cwd=project).stdout == f"{project}\n".encode()
    done = cli("run", "-q", "--workspace-path", "/etc", "--", "pwd", cwd=project)
    assert done.returncode == 125 and b"leave it at /workspace" in done.stderr


def test_files_that_git_ignores(cli: Cli, project: Path) -> None:
    script = "ls -A . src; cat build/out"
    done = cli("run", "-q", "--workspace-ignored", "hide", "--", "sh", "-c", script, cwd=project)
    assert done.returncode == 1 and b"x.log" not in done.stdout and b"build" not in done.stdout
    done = cli("run", "-q", "--", "sh", "-c", f"{script} src/x.log", cwd=project)
    assert done.returncode == 0 and done.stdout.endswith(b"made\nlog\n"), done
    # In a file of the project's, showing them again is more than the user gives.
    (project / "agentkernel.toml").write_text("[sandbox]\nworkspace_secrets = true\n")
    done = cli("run", "--", "true", cwd=project)
    assert done.returncode == 125 and b"it shows files that look like secrets" in done.stderr


def test_a_sandbox_that_stays(cli: Cli, ask: Json, project: Path, removed: list[str]) -> None:
    done = cli("run", "--keep", "fix", "--", "sh", "-c", "echo two >> README", cwd=project)
    removed.append("fix")
    assert done.returncode == 0 and b"which stays" in done.stderr, done
    done = cli("run", "-q", "--keep", "fix", "--", "cat", "README", cwd=project)
    assert (done.stdout, done.stderr) == (b"one\ntwo\n", b"")
    assert cli("sandbox", "stop", "fix").returncode == 0
    assert (
        cli("run", "-q", "--keep", "fix", "--", "sh", "-c", "exit 7", cwd=project).returncode == 7
    )
    assert [change["path"] for change in ask("diff", "fix")["changes"]] == ["README"]
    assert cli("apply", "fix").stdout == b"M  README\n"
    assert (project / "README").read_text() == "one\ntwo\n"


def test_the_sandbox_of_a_branch(cli: Cli, project: Path, removed: list[str]) -> None:
    git(project, "branch", "feat/x")
    done = cli("sandbox", "create", "--branch", "feat/x", cwd=project / "src")
    name = done.stdout.decode().strip()
    removed.append(name)
    assert done.returncode == 0 and name.startswith("shop-feat-x-"), done
    assert (
        cli("sandbox", "create", "--branch", "feat/x", cwd=project).stdout.decode() == f"{name}\n"
    )
    done = cli(
        "run", "-q", "--branch", "feat/x", "--", "sh", "-c", "echo two >> README; echo x > new",
        cwd=project,
    )  # fmt: skip
    assert done.returncode == 0, done
    # From another directory of the same repository it is the same one.
    git(project, "worktree", "add", "-q", "../other", "-b", "other")
    words = ("run", "-q", "--branch", "feat/x", "--", "cat", "README")
    assert cli(*words, cwd=project.parent / "other").stdout == b"one\ntwo\n"
    assert cli("apply", name).returncode == 125
    done = cli("apply", name, "--commit", "-m", "the work")
    assert done.returncode == 0 and b"on refs/heads/feat/x" in done.stdout, done
    assert git(project, "log", "-1", "--format=%s", "feat/x") == "the work"
    assert git(project, "show", "feat/x:new") == "x"
    assert git(project, "status", "--short") == ""
    assert b"nothing to commit" in cli("apply", name, "--commit").stdout
    done = cli("run", "--branch", "x", "--", "true", cwd=project.parent)
    assert done.returncode == 125 and b"no git repository" in done.stderr
