"""What became of a sandbox's workspace: `kernel.workspaces`.

The sandbox's changes are read on the host, from files that a guest has made: see
`workspaces.changes` for what is believed of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Blueprint, WorkspaceFiles
from agentkernel.backends.registry import Backends
from agentkernel.errors import ConflictError, HostError, UnsupportedError
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.bases import Bases
from agentkernel.kernel.inside import Inside
from agentkernel.kernel.jobs import Find
from agentkernel.kernel.live import Live
from agentkernel.kernel.store import SandboxRecord, Store
from agentkernel.workspaces import diffing
from agentkernel.workspaces.applying import Applier, WorkspaceApplied
from agentkernel.workspaces.base import Base
from agentkernel.workspaces.branches import find_branch, find_place
from agentkernel.workspaces.committing import Committer, commit_target
from agentkernel.workspaces.diffing import WorkspaceDiff
from agentkernel.workspaces.model import Workspace, file_clock_ns
from agentkernel.workspaces.targets import SAME, workspace_target


class Workspaces:
    """See the module."""

    def __init__(self, store: Store, find: Find, trail: Trail, backends: Backends) -> None:
        self._store = store
        self._find = find
        self.trail = trail
        self._backends = backends
        self.bases = Bases()

    def begin(self, blueprint: Blueprint, backend: str) -> None:
        """A new sandbox runs: how its project is now is written down, beside it."""
        workspace = blueprint.workspace
        if workspace is None or workspace.mode != "cow" or blueprint.owned:
            return
        with contextlib.suppress(UnsupportedError):
            files = self._backends[backend].workspace_files(blueprint)
            self.bases.begin(blueprint.id, workspace, files.base)

    async def end(self, id: str) -> None:
        """Before the sandbox's files go."""
        await self.bases.end(id)

    async def close(self) -> None:
        await self.bases.close()

    @audited("workspace.diff")
    async def diff(self, id: str, *, owner: str | None = None) -> WorkspaceDiff:
        """What the sandbox has changed, running or not. Raises UnsupportedError, ConflictError."""
        record, live = await self._find(id, owner)
        workspace, files = self._files(record)

        def look(upper: str) -> WorkspaceDiff:
            if not os.path.isdir(upper):
                return WorkspaceDiff(changes=[])
            try:
                return diffing.diff(
                    upper,
                    files.project,
                    began_ns=workspace.began_ns,
                    hidden=hidden_paths(files.hidden),
                    ours=applied_marks(files.applied),
                )
            except OSError as exc:
                raise HostError(f"the workspace can't be read: {exc.strerror}") from None

        async with self._upper(live, workspace, files) as upper:
            return await asyncio.to_thread(look, upper)

    @audited("workspace.apply")
    async def apply(
        self,
        id: str,
        paths: Sequence[str] = (),
        *,
        allow_risky: bool = False,
        mark_conflicts: bool = False,
        commit: str | None = None,
        owner: str | None = None,
    ) -> WorkspaceApplied:
        """Makes the sandbox's changes, or those at `paths`, in the host's directory. What the host
        has changed since, too, is merged; where both have changed the same lines it is left as it
        is, and told, or both are written between marks.

        `commit`: instead they become a commit with this message (empty: one of ours), on the branch
        that the workspace is if nobody has that checked out, else on refs/agentkernel/NAME."""
        record, live = await self._find(id, owner)
        workspace, files = self._files(record)
        await self.bases.done(record.id)
        if commit is not None:
            async with live.changing, self._upper(live, workspace, files) as upper:
                work = asyncio.to_thread(
                    self._commit, record, workspace, files, upper, paths, commit, allow_risky
                )
                return await asyncio.shield(work)
        if workspace.own_tree:
            raise ConflictError(
                f"the branch {workspace.branch} is not checked out here, so there are no files to "
                "make the changes in",
                hint="make a commit of them: agentkernel apply --commit",
            )

        def carry_out(upper: str) -> WorkspaceApplied:
            if not os.path.isdir(upper):
                return WorkspaceApplied(files=[], complete=True)
            with Base(files.base) as base:
                applier = Applier(
                    upper,
                    files.project,
                    base=base,
                    began_ns=workspace.began_ns,
                    hidden=hidden_paths(files.hidden),
                    ours=applied_marks(files.applied),
                    mark_conflicts=mark_conflicts,
                )
                try:
                    return applier.apply(paths, allow_risky=allow_risky)
                except OSError as exc:
                    raise HostError(f"the workspace can't be read: {exc.strerror}") from None
                finally:
                    record_marks(files.applied, applier.marks)

        async with live.changing, self._upper(live, workspace, files) as upper:
            # A caller who goes leaves no directory half done.
            return await asyncio.shield(asyncio.to_thread(carry_out, upper))

    @audited("workspace.discard")
    async def discard(self, id: str, *, owner: str | None = None) -> None:
        """Forgets the sandbox's changes. Raises ConflictError while it runs."""
        record, live = await self._find(id, owner)
        async with live.changing:
            record = await self._store.get_sandbox(record.id)
            workspace, files = self._files(record)
            if files.upper is None:
                raise UnsupportedError(
                    "this sandbox's files are in memory or on a disk of their own, of which the "
                    "workspace is a part",
                    hint="remove the sandbox, and make another",
                )
            if live.sandbox is not None:
                raise ConflictError(
                    "the sandbox runs, and its programs have these files open",
                    hint=f"first: agentkernel sandbox stop {record.name or record.id}",
                )
            blueprint = msgspec.convert(record.blueprint, Blueprint)
            await self.bases.end(record.id)
            await self._backends[record.backend].discard_workspace(blueprint)
            anew = msgspec.structs.replace(workspace, began_ns=file_clock_ns())
            blueprint = msgspec.structs.replace(blueprint, workspace=anew)
            await self._store.update_sandbox(record.id, blueprint=msgspec.to_builtins(blueprint))
            self.begin(blueprint, record.backend)

    @contextlib.asynccontextmanager
    async def _upper(
        self, live: Live, workspace: Workspace, files: WorkspaceFiles
    ) -> AsyncIterator[str]:
        """The directory with the changes. Where there is none it is made for this time, from what
        is seen inside: then the sandbox has to run."""
        if files.upper is not None:
            yield files.upper
            return
        with live.used() as sandbox:
            async with live.viewing:
                shutil.rmtree(files.view, ignore_errors=True)
                os.mkdir(files.view, 0o700)
                try:
                    hidden = hidden_paths(files.hidden)
                    guest = GuestFiles(sandbox.channel, user="root")
                    await Inside(guest, files.project, files.view, hidden, workspace.target).fetch()
                    yield files.view
                finally:
                    await asyncio.to_thread(shutil.rmtree, files.view, ignore_errors=True)

    def _commit(
        self,
        record: SandboxRecord,
        workspace: Workspace,
        files: WorkspaceFiles,
        upper: str,
        paths: Sequence[str],
        message: str,
        allow_risky: bool,
    ) -> WorkspaceApplied:
        """Blocking."""
        name = record.name or record.id
        try:
            target = commit_target(workspace, files.project, name)
            if not os.path.isdir(upper):
                return WorkspaceApplied(files=[], complete=True, ref=target.ref)
            with Base(files.base) as base:
                committer = Committer(
                    upper,
                    files.project,
                    target,
                    base=base,
                    record=f"{files.base}/committed",
                    began_ns=workspace.began_ns,
                    hidden=hidden_paths(files.hidden),
                )
                return committer.commit(
                    paths,
                    message=message or f"Changes of the sandbox {name}",
                    allow_risky=allow_risky,
                )
        except OSError as exc:
            raise HostError(f"the workspace can't be read: {exc.strerror}") from None

    def _files(self, record: SandboxRecord) -> tuple[Workspace, WorkspaceFiles]:
        blueprint = msgspec.convert(record.blueprint, Blueprint)
        workspace = blueprint.workspace
        if workspace is None or workspace.mode != "cow":
            why = "has none" if workspace is None else f"is {workspace.mode}"
            raise ConflictError(
                f"the sandbox has no changes of a workspace of its own: it {why}",
                hint="make one with --workspace DIR",
            )
        return workspace, self._backends[record.backend].workspace_files(blueprint)


async def with_branch(blueprint: Blueprint) -> Blueprint:
    """With a workspace that is a branch: which commit that is, and in which directory."""
    workspace = blueprint.workspace
    if workspace is None or not workspace.branch:
        return blueprint
    place = find_place(workspace.path)
    branch = await asyncio.to_thread(find_branch, place, workspace.branch)
    path = branch.checked_out or branch.place.top
    is_same = workspace.target == workspace.path
    workspace = msgspec.structs.replace(
        workspace,
        path=path,
        target=workspace_target(SAME, path) if is_same else workspace.target,
        repository=branch.place.common,
        commit=branch.commit,
        own_tree=branch.checked_out is None,
    )
    return msgspec.structs.replace(blueprint, workspace=workspace)


def hidden_paths(directory: str) -> frozenset[str]:
    """What the layer of ours hides. No guest writes there."""
    found: list[str] = []
    for here, _, names in os.walk(directory):
        at = os.path.relpath(here, directory)
        found += [
            name if at == "." else f"{at}/{name}"
            for name in names
            if stat.S_ISCHR(os.lstat(f"{here}/{name}").st_mode)
        ]
    return frozenset(found)


def applied_marks(path: str) -> dict[str, tuple[int, int]]:
    """Which files of the host are as `apply` has left them: number and time of change."""
    try:
        with open(path, "rb") as file:
            marks = msgspec.msgpack.decode(file.read(), type=dict[bytes, tuple[int, int]])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return {os.fsdecode(name): mark for name, mark in marks.items()}


def record_marks(path: str, marks: Mapping[str, tuple[int, int]]) -> None:
    if not marks:
        return
    temporary = f"{path}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(msgspec.msgpack.encode({os.fsencode(name): at for name, at in marks.items()}))
    os.rename(temporary, path)
