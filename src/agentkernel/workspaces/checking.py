"""Which directories can be a workspace, and what of git lies outside of one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError, NotFoundError

StrPath = str | os.PathLike[str]
# File systems of the kernel's own, and what a sandbox has already.
_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot")
_MOST_POINTER = 4096


@dataclass(frozen=True)
class Repository:
    """What a git worktree points to: the repository's own `.git`, outside of the project, and in
    there what is this worktree's (`own`)."""

    common: str
    own: str


def check_directory(path: str, protected: Iterable[StrPath]) -> str:
    """The directory without links. Raises InvalidInputError, NotFoundError.

    `protected` (the state directory) may neither be in it nor around it: a guest would find other
    sandboxes' files there, and its own.
    """
    try:
        real = os.path.realpath(path)
        os.fsencode(real).decode("utf-8")
    except (ValueError, UnicodeError):
        raise InvalidInputError(f"{path!r} can't be a workspace: its name is not text") from None
    if not os.path.lexists(real):
        raise NotFoundError(f"there is no directory {path}", hint="name one that is there")
    if not os.path.isdir(real):
        raise InvalidInputError(f"{path} can't be a workspace: it is not a directory")
    if real == "/":
        raise InvalidInputError(
            "/ can't be a workspace: it would show all of this machine's files",
            hint="name the project's own directory",
        )
    if _is_in_or_around(real, os.path.realpath(os.path.expanduser("~")), around_only=True):
        raise InvalidInputError(
            f"{path} can't be a workspace: it is or contains your home, with your keys and other "
            "projects",
            hint="name the project's own directory",
        )
    for system in _SYSTEM:
        if real == system or real.startswith(system + "/"):
            raise InvalidInputError(f"{path} can't be a workspace: it belongs to the system")
    for other in protected:
        if _is_in_or_around(real, os.path.realpath(other)):
            raise InvalidInputError(
                f"{path} can't be a workspace: the state directory {os.fspath(other)} is in or "
                "around it",
                hint="set AGENTKERNEL_STATE_DIR to a directory outside of the project",
            )
    if not os.access(real, os.R_OK | os.X_OK):
        raise InvalidInputError(f"{path} can't be a workspace: you can't read it")
    return real


def find_repository(project: str) -> Repository | None:
    """The repository of a git worktree, whose `.git` is a file that says where it is.

    A file can say anything, and projects are cloned from anywhere: it counts only if the place it
    names is a repository that knows this very worktree.
    """
    pointer = _first_line(f"{project}/.git")
    if not pointer.startswith("gitdir: "):
        return None
    own = os.path.realpath(os.path.join(project, pointer.removeprefix("gitdir: ")))
    common = os.path.dirname(os.path.dirname(own))
    knows = _first_line(f"{own}/gitdir")
    if (
        os.path.dirname(own) != f"{common}/worktrees"
        or os.path.realpath(os.path.join(own, _first_line(f"{own}/commondir"))) != common
        or not knows
        or os.path.realpath(os.path.join(own, knows)) != f"{project}/.git"
        or not os.path.isdir(f"{common}/objects")
    ):
        return None
    return Repository(common, own)


def _first_line(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(fd, _MOST_POINTER).decode("utf-8", "strict")
    except (OSError, UnicodeError):
        return ""
    finally:
        os.close(fd)
    return text.partition("\n")[0].rstrip("\r").replace("\0", "")


def _is_in_or_around(path: str, other: str, *, around_only: bool = False) -> bool:
    if (other + "/").startswith(path + "/"):
        return True
    return not around_only and path.startswith(other + "/")
