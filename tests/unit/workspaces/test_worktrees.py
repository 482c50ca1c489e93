"""Worktrees beside a project: made by git, while nothing of the repository is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentkernel.errors import ConflictError, InvalidInputError
from agentkernel.workspaces import git as runs
from agentkernel.workspaces import worktrees
from agentkernel.workspaces.branches import find_place
from agentkernel.workspaces.git import Git, GitError

if not runs.has_git():
    pytest.skip("git is not installed", allow_module_level=True)


def git(project: Path, *words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
        cwd=project, check=check, capture_output=True, timeout=20, text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main", "project")
    path = tmp_path / "project"
    (path / "sub").mkdir()
    (path / "sub" / "file").write_text("text\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    return path


def test_a_new_one_is_a_clean_checkout_on_a_branch_of_its_own(project: Path) -> None:
    (project / "sub" / "file").write_text("not committed\n")
    made = worktrees.open_worktree(find_place(str(project)), "fix/one")
    path = Path(made.path)
    assert path == project.parent / "project.worktrees" / "fix-one"
    assert made.is_new and made.branch_is_new
    assert (path / "sub" / "file").read_text() == "text\n"
    assert git(path, "status", "--porcelain", "--branch") == "## fix/one"
    assert git(project, "status", "--porcelain") == "M sub/file"
    # The second time it is found, from either of the two.
    for here in (project, path):
        again = worktrees.open_worktree(find_place(str(here)), "fix/one")
        assert again.path == made.path and not again.is_new


def test_a_branch_that_is_there_keeps_its_commit(project: Path) -> None:
    git(project, "branch", "old")
    git(project, "commit", "-q", "--allow-empty", "-m", "second")
    made = worktrees.open_worktree(find_place(str(project)), "old")
    assert made.is_new and not made.branch_is_new
    assert git(Path(made.path), "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD~1")


def test_neither_hooks_nor_filters_are_run(project: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    (project / ".gitattributes").write_text("* filter=evil\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "attributes")
    git(project, "config", "filter.evil.smudge", f"touch {ran}; cat")
    git(project, "config", "core.fsmonitor", f"touch {ran}")
    made = worktrees.open_worktree(find_place(str(project)), "quiet")
    assert (Path(made.path) / "sub" / "file").read_text() == "text\n" and not ran.exists()
    # The control: git itself runs them.
    git(project, "worktree", "add", "-q", str(tmp_path / "loud"), "-b", "loud")
    assert ran.exists()


def test_what_can_not_be_one(project: Path) -> None:
    place = find_place(str(project))
    for name in ("-x", "a..b", "a b", ""):
        with pytest.raises(InvalidInputError):
            worktrees.open_worktree(place, name)
    (project.parent / "project.worktrees" / "taken").mkdir(parents=True)
    with pytest.raises(ConflictError):
        worktrees.open_worktree(place, "taken")


def test_nothing_is_left_of_one_that_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plumbing = Git.plumbing

    def fails(self: Git, *words: str, **options: object) -> bytes:
        if words[0] == "read-tree":
            raise GitError("no")
        return plumbing(self, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "plumbing", fails)
    with pytest.raises(GitError):
        worktrees.open_worktree(find_place(str(project)), "gone")
    assert git(project, "branch", "--list", "gone") == ""
    assert git(project, "worktree", "list").count("\n") == 0
