"""Repositories that somebody gave to a user: what git and we make of them ends, and is bounded."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentkernel.errors import InvalidInputError
from agentkernel.workspaces import git as runs
from agentkernel.workspaces.branches import find_branch, find_place
from agentkernel.workspaces.git import Git, GitError

if not runs.has_git():
    pytest.skip("git is not installed", allow_module_level=True)


def git(project: Path, *words: str, given: str = "") -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=True, capture_output=True, timeout=20, text=True, input=given,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main", "project")
    path = tmp_path / "project"
    (path / "file").write_text("text\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    return path


def ends(call: Callable[[], object]) -> None:
    """Whatever it gives or raises."""

    def work() -> None:
        try:
            call()
        except Exception as exc:
            raised.append(exc)

    raised: list[Exception] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["config", "HEAD", "info/exclude"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(
    project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SECONDS", 1.0)  # of git itself
    place = find_place(str(project))
    assert find_branch(place, "main").exists
    path = project / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    ends(lambda: find_branch(place, "main"))


def test_trees_without_an_end_are_not_read_to_their_end(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten names for one tree, which has ten names for one tree: some hundred bytes each."""
    blob = git(project, "hash-object", "-w", "file")
    lines = [f"100644 blob {blob}\t{n}" for n in range(10)]
    for _ in range(9):
        tree = git(project, "mktree", given="\n".join(lines) + "\n")
        lines = [f"040000 tree {tree}\t{n}" for n in range(10)]
    monkeypatch.setattr(runs, "_MOST_OUTPUT", 1 << 20)
    with Git(find_place(str(project))) as repository:
        with pytest.raises(GitError, match="more than 1 MiB"):
            repository.plumbing("ls-tree", "-r", "-z", tree)
        commit = git(project, "rev-parse", "HEAD")
        assert repository.plumbing("ls-tree", "-r", "--name-only", commit) == b"file\n"


def test_what_git_says_of_a_failure_is_told(project: Path) -> None:
    with Git(find_place(str(project))) as repository, pytest.raises(GitError, match="fatal"):
        repository.plumbing("cat-file", "blob", "0" * 40)


def test_a_branch_without_its_commit_is_no_new_one(project: Path) -> None:
    (project / ".git/refs/heads/gone").write_text("12" * 20 + "\n")
    place = find_place(str(project))
    with pytest.raises(InvalidInputError, match="damaged"):
        find_branch(place, "gone")
    assert not find_branch(place, "new").exists
