"""Git worktrees of a project beside it: directories of their own in which others can work.

    …/project                      where the user works
    …/project.worktrees/NAME       the branch NAME, checked out

git makes them, with all that could run something switched off; the files are written through a git
directory of our own, so no filter is run either: what a filter keeps elsewhere (LFS) is a pointer
there until the user runs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass

from agentkernel.errors import ConflictError
from agentkernel.workspaces.branches import find_branch
from agentkernel.workspaces.checking import find_repository
from agentkernel.workspaces.git import Git, GitError, GitPlace


@dataclass(frozen=True)
class Worktree:
    """`is_new`: it was not there before. `branch_is_new`: so was its branch."""

    path: str
    branch: str
    is_new: bool
    branch_is_new: bool


def open_worktree(place: GitPlace, name: str) -> Worktree:
    """The worktree of the branch `name`: where somebody has it checked out, or a new one beside the
    project, from where the project is now. Blocking. Raises InvalidInputError, ConflictError,
    GitError, UnsupportedError."""
    branch = find_branch(place, name)
    if branch.checked_out is not None:
        return Worktree(branch.checked_out, name, is_new=False, branch_is_new=False)
    path = f"{main_directory(place)}.worktrees/{name.replace('/', '-')}"
    if os.path.lexists(path):
        raise ConflictError(
            f"{path} is there, and is not the worktree of {name}",
            hint="move it away, or choose another name",
        )
    new = () if branch.exists else ("--no-track", "-b", name)
    with Git(place) as git:
        # Without a checkout of git's own, which would run filters; --no-track: no configuration.
        git.in_repository(
            "worktree", "add", "--quiet", "--no-checkout", *new, "--",
            path, branch.name if branch.exists else branch.commit, writes=True,
        )  # fmt: skip
        try:
            made = find_repository(path)
            if made is None or made.common != place.common:
                raise GitError(f"git made no worktree at {path}")
            index = f"{made.own}/index"
            git.plumbing("read-tree", branch.commit, index=index, writes=True)
            git.plumbing(
                "checkout-index", "--all", "--quiet", "--index",
                index=index, work_tree=path, cwd=path, writes=True,
            )  # fmt: skip
        except BaseException:
            _remove(git, path, None if branch.exists else (branch.ref, branch.commit))
            raise
    return Worktree(path, name, is_new=True, branch_is_new=not branch.exists)


def main_directory(place: GitPlace) -> str:
    """What a repository is known by: the directory of its main worktree, or a bare one's own."""
    if os.path.basename(place.common) == ".git":
        return os.path.dirname(place.common)
    return place.common.removesuffix(".git")


def _remove(git: Git, path: str, branch: tuple[str, str] | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(GitError):
        git.in_repository("worktree", "prune", writes=True)
        if branch is not None:
            git.in_repository("update-ref", "-d", *branch, writes=True)
