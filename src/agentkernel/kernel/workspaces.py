"""What became of a sandbox's workspace: `kernel.workspaces`.

The sandbox's changes are read on the host, from files that a guest has made: see
`workspaces.changes` for what is believed of them.
"""

from __future__ import annotations

import asyncio
import os
import stat

import msgspec

from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Blueprint, WorkspaceFiles
from agentkernel.backends.registry import Backends
from agentkernel.errors import ConflictError, HostError
from agentkernel.kernel.jobs import Find
from agentkernel.kernel.store import SandboxRecord
from agentkernel.workspaces import diffing
from agentkernel.workspaces.diffing import WorkspaceDiff
from agentkernel.workspaces.model import Workspace


class Workspaces:
    """See the module."""

    def __init__(self, find: Find, trail: Trail, backends: Backends) -> None:
        self._find = find
        self.trail = trail
        self._backends = backends

    @audited("workspace.diff")
    async def diff(self, id: str, *, owner: str | None = None) -> WorkspaceDiff:
        """What the sandbox has changed, running or not. Raises UnsupportedError, ConflictError."""
        record, _ = await self._find(id, owner)
        workspace, files = self._files(record)

        def look() -> WorkspaceDiff:
            try:
                return diffing.diff(
                    files.upper,
                    workspace.path,
                    began_ns=workspace.began_ns,
                    hidden=hidden_paths(files.hidden),
                    ours=applied_marks(files.applied),
                )
            except OSError as exc:
                raise HostError(f"the workspace can't be read: {exc.strerror}") from None

        return await asyncio.to_thread(look)

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
