"""A project of the host in a sandbox's root: checked, its secrets hidden, put into the plan.

As root of the machine the project is idmapped so that its owner is the sandbox's user inside; for
anybody else who owns the project, that is what the sandbox's own ids make of it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path

from agentkernel.backends.base import Blueprint, EffectiveLine
from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.backends.local.idmaps import RANGE_SIZE, IdMaps, Lines
from agentkernel.backends.local.plan import LaunchPlan
from agentkernel.config.volumes import is_below
from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.images.accounts import Account
from agentkernel.images.model import RootFilesystem, Tree
from agentkernel.workspaces.branches import make_tree
from agentkernel.workspaces.checking import check_directory, find_repository
from agentkernel.workspaces.hiding import make_hidden
from agentkernel.workspaces.ignoring import find_ignored, topmost
from agentkernel.workspaces.model import UPPER_INDEX, Workspace
from agentkernel.workspaces.secret_files import SecretFinder
from agentkernel.workspaces.targets import BORROWED_OBJECTS

_ENFORCED = {
    "cow": "overlay: changes go to the sandbox's own files",
    "ro": "read-only overlay: sockets in it can't be reached",
    "rw": "a hole, asked for by name: what is changed inside is changed outside, and sockets in it "
    "can be reached",
}


@dataclass(frozen=True)
class Project:
    """A workspace, ready to be mounted. `hidden` are paths below it, `layer` what hides them;
    `counts`: how many look like secrets, and are ignored by git. `repository`: what of git lies
    elsewhere."""

    workspace: Workspace
    path: str
    owner: tuple[int, int]
    hidden: tuple[str, ...]
    counts: tuple[int, int]
    layer: str | None
    repository: str | None
    guess: list[str] | None = None


def find_project(
    blueprint: Blueprint,
    account: Account,
    maps: IdMaps,
    directory: SandboxDirectory,
    state_dir: Path,
    finder: SecretFinder,
    *,
    may_guess: bool,
) -> Project | None:
    """Blocking. Raises InvalidInputError, NotFoundError, UnsupportedError. `may_guess`: what looks
    like a secret may be what was found last; then `check_guess` has the last word."""
    workspace = blueprint.workspace
    if workspace is None:
        return None
    if workspace.own_tree:
        path = str(directory.tree)
        objects = _objects(workspace) or f"{workspace.repository}/objects"
        make_tree(path, workspace.repository, workspace.commit, workspace.branch, objects=objects)
    else:
        path = check_directory(workspace.path, (state_dir,))
    info = os.stat(path)
    _refuse_others(blueprint, account, maps)
    secrets: list[str] = []
    guess = finder.remembered(path) if may_guess and not workspace.secrets else None
    if not workspace.secrets:
        secrets = finder.find(path) if guess is None else guess
    ignored = [] if workspace.ignored else find_ignored(path)
    hidden = tuple(topmost([*secrets, *ignored]) if ignored else secrets)
    layer = None
    if hidden and workspace.mode != "rw":
        layer = _layer_that_hides(directory, path, hidden)
    repository = None if workspace.own_tree else find_repository(path)
    shown = None if repository is None else repository.common
    return Project(
        workspace=workspace,
        path=path,
        owner=(info.st_uid, info.st_gid),
        hidden=hidden,
        counts=(len(secrets), len(ignored)),
        guess=guess,
        layer=layer,
        repository=f"{workspace.repository}/objects" if workspace.own_tree else shown,
    )


def _layer_that_hides(
    directory: SandboxDirectory, path: str, hidden: tuple[str, ...]
) -> str | None:
    """None where the state's file system has no whiteouts (overlay, as in containers): then an
    empty file or directory is put over each."""
    try:
        make_hidden(directory.hidden, path, hidden)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return None
    return str(directory.hidden)


def check_guess(project: Project, finder: SecretFinder) -> bool:
    """Whether that is what has to be hidden. Blocking."""
    try:
        return finder.find(project.path) == project.guess
    except OSError:
        return False


def project_path(blueprint: Blueprint, directory: SandboxDirectory) -> str:
    workspace = blueprint.workspace
    if workspace is None:
        return ""
    return str(directory.tree) if workspace.own_tree else workspace.path


def _refuse_others(blueprint: Blueprint, account: Account, maps: IdMaps) -> None:
    """Where ids on disk can't be made others, the project's files may not be the guest's to edit:
    said before, and not found out in the middle of the work."""
    workspace = blueprint.workspace
    if workspace is None or workspace.mode == "ro" or maps.mode != "subuid":
        return
    if maps.upper_owner or account.uid != 0:
        raise UnsupportedError(
            f"in this sandbox {blueprint.user!r} does not own the files of {workspace.path}, and "
            "could not edit them",
            hint="use --user root and an image of your own files, or the workspace read-only (:ro)",
        )


def add_trees(root: RootFilesystem, project: Project | None) -> RootFilesystem:
    """The repository of a git worktree is elsewhere: it is shown at its own path, read-only. Of the
    repository of a branch that is checked out nowhere else, the objects are."""
    if project is None or project.repository is None:
        return root
    reason = "git's objects of the workspace"
    tree = Tree(project.repository, reason, owned=True, at=_objects(project.workspace))
    return replace(root, trees=(*root.trees, tree))


def _objects(workspace: Workspace) -> str:
    """Where a branch's own checkout finds the objects that it borrows, if the workspace lies over
    their own path; else empty."""
    inside = f"{workspace.repository}/objects"
    return BORROWED_OBJECTS if workspace.own_tree and is_below(inside, workspace.target) else ""


def check_target(project: Project | None, blueprint: Blueprint, root: RootFilesystem) -> None:
    """Nothing else that the sandbox has may be where the workspace is. Raises InvalidInputError."""
    if project is None:
        return
    target = project.workspace.target
    for tree in root.trees:
        if target == tree.target or is_below(target, tree.target):
            raise _no_place(target, f"{tree.target} is read-only inside ({tree.reason})")
        # At its own path, the project has in it what is there.
        if is_below(tree.target, target) and project.path != target:
            raise _no_place(target, f"it would cover {tree.target} ({tree.reason})")
    for volume in blueprint.volumes:
        if volume.path == target or is_below(target, volume.path):
            raise _no_place(target, f"the volume {volume.name} at {volume.path} would cover it")


def _no_place(target: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"the workspace can't be at {target}: {why}",
        hint="choose another path, or leave it at /workspace",
    )


def add_workspace(plan: LaunchPlan, project: Project | None, account: Account) -> None:
    if project is None:
        return
    workspace, target = project.workspace, project.workspace.target
    if plan.maps.mode == "range":
        first = plan.maps.outer_uids[0][1]
        plan.project_uids = owner_lines(project.owner[0], account.uid, first)
        plan.project_gids = owner_lines(project.owner[1], account.gid, first)
    source = plan.source(project.path, writable=workspace.mode == "rw", project=True)
    if workspace.mode == "rw":
        plan.op("bind", target, index=source)
        for path in project.hidden:
            plan.op("mask", f"{target}/{path}")
        return
    numbers = [source]
    if project.layer is not None:
        numbers.insert(0, plan.source(project.layer, project=True))
    lowers = ":".join(map(str, numbers))
    if workspace.mode == "cow":
        plan.op("overlay", target, lowers=lowers, index=UPPER_INDEX, alike=True)
    elif len(numbers) > 1:
        plan.op("tree", target, lowers=lowers)
    else:
        plan.op("tree", target, index=source)
    if project.layer is None:
        for path in project.hidden:
            plan.op("mask", f"{target}/{path}")


def owner_lines(owner: int, guest: int, first: int) -> Lines:
    """On disk to inside: `owner` is `guest`, the two change places, and all others stay."""
    places = {owner: guest}
    if owner < RANGE_SIZE:
        places.setdefault(guest, owner)
    lines = []
    start = 0
    for cut in sorted({id for id in (owner, guest) if id < RANGE_SIZE}):
        if cut > start:
            lines.append((start, first + start, cut - start))
        if cut in places:
            lines.append((cut, first + places[cut], 1))
        start = cut + 1
    if start < RANGE_SIZE:
        lines.append((start, first + start, RANGE_SIZE - start))
    if owner >= RANGE_SIZE:
        lines.append((owner, first + guest, 1))
    return tuple(lines)


def workspace_lines(project: Project | None) -> list[EffectiveLine]:
    if project is None:
        return []
    workspace = project.workspace
    lines = [EffectiveLine("workspace", workspace.words, _ENFORCED[workspace.mode])]
    if project.hidden:
        kinds = zip(project.counts, ("like secrets", "ignored by git"), strict=True)
        what = ", ".join(f"{count} {words}" for count, words in kinds if count)
        by = "an empty file over each" if project.layer is None else "whiteouts above the project"
        lines.append(EffectiveLine("hidden in the workspace", what, by))
    return lines
