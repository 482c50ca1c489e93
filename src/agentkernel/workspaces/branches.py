"""A branch of a repository as a sandbox's workspace: where it is checked out, or a tree of our own.

A tree of our own is a checkout below the sandbox's directory, with a small repository in it that
borrows the objects of the real one: git works inside, and commits made there stay there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.workspaces.checking import find_repository
from agentkernel.workspaces.git import Git, GitError, GitPlace, find_git, read_beginning

_MOST_HEAD = 4096


@dataclass(frozen=True)
class Branch:
    """`commit`: where it is, or where a new one would begin. `checked_out`: the directory in which
    somebody works on it; None: nowhere."""

    place: GitPlace
    name: str
    commit: str
    exists: bool
    checked_out: str | None

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"


def find_place(directory: str) -> GitPlace:
    """The repository of a directory. Raises NotFoundError."""
    place = find_git(os.path.realpath(directory))
    if place is None:
        raise NotFoundError(f"{directory} is in no git repository", hint="name one that is")
    return place


def find_branch(place: GitPlace, name: str) -> Branch:
    """Blocking. Raises InvalidInputError, UnsupportedError, GitError."""
    with Git(place) as git:
        try:
            git.plumbing("check-ref-format", f"refs/heads/{name}")
        except GitError:
            raise InvalidInputError(f"{name!r} can't be the name of a branch") from None
        if name.startswith("-"):
            raise InvalidInputError(f"{name!r} can't be the name of a branch")
        commit = commit_at(git, f"refs/heads/{name}")
        exists = commit is not None
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{name}")
        if not exists and git.in_repository(*words, accept=(0, 1, 128)):
            raise InvalidInputError(
                f"the branch {name} of {place.top} is damaged: its commit is not there",
                hint="fetch it, or choose another branch",
            )
        commit = commit or commit_at(git, "HEAD")
    if commit is None:
        raise InvalidInputError(
            f"the repository {place.top} has no commit yet", hint="make the first one"
        )
    return Branch(place, name, commit, exists, _checked_out(place.common, name))


def commit_at(git: Git, ref: str) -> str | None:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return git.in_repository(*words, accept=(0, 1, 128)).decode().strip() or None


def _checked_out(common: str, name: str) -> str | None:
    """The directory of the repository, or of a worktree, whose HEAD is the branch."""
    if os.path.basename(common) == ".git" and _head(common) == f"ref: refs/heads/{name}":
        return os.path.dirname(common)
    with contextlib.suppress(OSError):
        for worktree in sorted(os.listdir(f"{common}/worktrees")):
            own = f"{common}/worktrees/{worktree}"
            if _head(own) != f"ref: refs/heads/{name}":
                continue
            pointer = _text(f"{own}/gitdir")
            top = os.path.dirname(os.path.realpath(os.path.join(own, pointer)))
            known = find_repository(top)
            if known is not None and known.common == common:
                return top
    return None


def _head(own: str) -> str:
    return _text(f"{own}/HEAD")


def _text(path: str) -> str:
    try:
        text = read_beginning(path, _MOST_HEAD).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    return text.partition("\n")[0].strip().replace("\0", "")


def place_of(common: str) -> GitPlace:
    """A repository known by its own directory alone."""
    return GitPlace(os.path.dirname(common), common, common)


def make_tree(target: str, common: str, commit: str, branch: str, *, objects: str) -> None:
    """The files of a commit at `target`, complete or not at all; `objects`: where those of `common`
    are for the guest. Blocking. Raises GitError, and OSError."""
    if os.path.isdir(target):
        return
    new = f"{target}.new"
    shutil.rmtree(new, ignore_errors=True)
    os.mkdir(new, 0o755)
    with Git(place_of(common)) as git:
        git.plumbing("read-tree", commit)
        # Through our own git directory there are no filters but git's own.
        git.plumbing("checkout-index", "--all", "--quiet", "--index", work_tree=new, cwd=new)
        own = f"{new}/.git"
        for name in ("objects/info", "refs/heads", "refs/tags"):
            os.makedirs(f"{own}/{name}")
        shutil.copyfile(git.scratch("index"), f"{own}/index")
        shutil.copyfile(git.scratch("config"), f"{own}/config")
    texts = {
        "HEAD": f"ref: refs/heads/{branch}\n",
        f"refs/heads/{branch}": f"{commit}\n",
        "objects/info/alternates": f"{objects}\n",
    }
    for name, text in texts.items():
        os.makedirs(os.path.dirname(f"{own}/{name}"), exist_ok=True)
        with open(f"{own}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    os.rename(new, target)
