"""Files of a project that git ignores, so that a sandbox need not see them. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable

from agentkernel.errors import InvalidInputError
from agentkernel.workspaces.git import Git, find_git

_MOST = 20_000


def find_ignored(project: str) -> list[str]:
    """Paths below the project, of files and whole directories, in order. Where there is no
    repository nothing is ignored. Raises UnsupportedError, GitError, InvalidInputError."""
    place = find_git(project)
    if place is None:
        return []
    with Git(place) as git:
        index = f"{place.own}/index"
        names = git.plumbing(
            *("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"),
            index=index if os.path.exists(index) else None,
            work_tree=place.top,
            cwd=project,
        )
    found = sorted(os.fsdecode(name.rstrip(b"/")) for name in names.split(b"\0") if name)
    if len(found) > _MOST:
        raise InvalidInputError(
            f"git ignores {len(found)} files of {project} one by one, which are too many to hide",
            hint="ignore their directories, or show them: --workspace-ignored show",
        )
    return found


def topmost(paths: Iterable[str]) -> list[str]:
    """Without those that are below another one, in order."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not found or not (path == found[-1] or path.startswith(f"{found[-1]}/")):
            found.append(path)
    return found
