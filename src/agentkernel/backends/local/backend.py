"""What engines of this machine have in common: the life of a sandbox whose root is ours.

Ids, control groups, directory, launch and removal are the same whoever makes the guest's
namespaces; an engine adds what it needs to the launch plan (`prepare`). To the host a sandbox is
one process, which the launcher writes down before it may do anything, so each engine can find, end
and remove what any other left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from agentkernel import faults
from agentkernel.backends.base import (
    Backend,
    Blueprint,
    EffectiveLine,
    NetworkSockets,
    Progress,
    WorkspaceFiles,
)
from agentkernel.backends.local import diagnose, idmaps
from agentkernel.backends.local.boot import boot_configuration
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.directory import (
    Process,
    Runtime,
    SandboxDirectory,
    abandoned,
    layers_in_use,
)
from agentkernel.backends.local.effective import effective_lines
from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.backends.local.idranges import IdRanges
from agentkernel.backends.local.launcher import LaunchFailure, launch, listen_in
from agentkernel.backends.local.layer_worker import LocalLayerWorker
from agentkernel.backends.local.network import Handover
from agentkernel.backends.local.plan import LaunchPlan
from agentkernel.backends.local.rootfs import Images, Looked, check_ids, is_shifted
from agentkernel.backends.local.sandbox import (
    LocalSandbox,
    end_sandbox,
    remove_files,
    remove_guest_files,
)
from agentkernel.backends.local.shortages import host_errors
from agentkernel.backends.local.uppers import Upper, choose_upper, make_image
from agentkernel.backends.local.volumes import check_places, refuse_volumes, volume_lines
from agentkernel.backends.local.workspace import (
    Project,
    add_trees,
    check_guess,
    check_target,
    find_project,
    project_path,
    workspace_lines,
)
from agentkernel.errors import (
    AgentKernelError,
    LaunchError,
    NotFoundError,
    SandboxUnavailableError,
    UnenforceableError,
)
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.protocol import TOKEN_BYTES
from agentkernel.images.accounts import Account
from agentkernel.images.cache import prune
from agentkernel.images.model import RootFilesystem, image_kind
from agentkernel.images.oci.layers import stored_layers
from agentkernel.images.oci.store import ImageStore
from agentkernel.images.view import View
from agentkernel.security.profiles import Limits
from agentkernel.workspaces.secret_files import SecretFinder

# A machine's own layers are four or five, with a mark beside each; more means that some are old.
_MANY_LAYER_FILES = 24


@dataclass(frozen=True)
class Launch:
    """A launch under way, for `prepare` to add to its plan."""

    plan: LaunchPlan
    root: RootFilesystem
    groups: SandboxGroups
    maps: idmaps.IdMaps
    account: Account
    directory: SandboxDirectory
    project: Project | None = None


class LocalBackend(Backend):
    """See the module."""

    # Where agentd makes its socket itself, inside; None: it inherits one.
    listen: ClassVar[str | None] = None

    def __init__(self, state_dir: Path, *, ranges: IdRanges | None = None) -> None:
        self._state_dir = state_dir
        self._runs = state_dir / "runs"
        self._kept = state_dir / "sandboxes"
        self._worker = LocalLayerWorker()
        self._images = Images(state_dir, self._worker)
        self._ranges = ranges or IdRanges()
        self._hierarchy = Hierarchy()
        self._finder = SecretFinder()

    # -- what an engine says ---------------------------------------------------------------------

    @abstractmethod
    def prepare(self, launch: Launch, blueprint: Blueprint) -> None:
        """Adds the root, and whatever else the engine needs, to the plan."""

    async def refuse(self, blueprint: Blueprint, maps: idmaps.IdMaps) -> None:
        """Raises for a blueprint that this engine can't carry out, before anything runs."""

    def can_enter(self, blueprint: Blueprint) -> bool:
        """True if the guest is in the launcher's network namespace, so that a way out made there is
        one for it."""
        return True

    def group_limits(self, limits: Limits) -> Limits:
        """What the control groups are told: they count the engine's own processes, too."""
        return limits

    def change_effective(self, lines: list[EffectiveLine], blueprint: Blueprint) -> None:
        """Corrects the lines where this engine differs from the native one."""

    def explain(self, failure: LaunchFailure, launch: Launch) -> AgentKernelError:
        return diagnose.explain(
            failure, as_root=launch.maps.mode == "range", upper=launch.plan.upper
        )

    # -- the contract ----------------------------------------------------------------------------

    async def collect_garbage(self) -> int:
        count = 0
        with host_errors("removing what was left behind"):
            for directory in abandoned(self._runs):
                await self._remove(directory)
                count += 1
        if _entries(self._images.directory / "layers") > _MANY_LAYER_FILES:
            await asyncio.to_thread(self._prune_layers)
        return count

    def _prune_layers(self) -> None:
        store = ImageStore(self._images.directory)
        kept = layers_in_use(self._runs, self._kept) | stored_layers(store, self._worker, set())
        prune(store.directory, kept, remove=self._worker.remove)

    async def create(self, blueprint: Blueprint, progress: Progress | None = None) -> LocalSandbox:
        parent = self._runs if blueprint.owned else self._kept
        with host_errors("making the sandbox"):
            directory = SandboxDirectory.create(parent, blueprint.id, locked=blueprint.owned)
            try:
                faults.point("launch.directory")
                return await self._start_in(directory, blueprint, progress)
            except BaseException:
                await self._remove(directory)
                raise

    async def start(self, blueprint: Blueprint, progress: Progress | None = None) -> LocalSandbox:
        directory = SandboxDirectory(self._kept / blueprint.id)
        if not directory.path.is_dir():
            raise NotFoundError("the sandbox's files are gone", hint="remove it and make another")
        with host_errors("starting the sandbox"):
            await self._end_unwatched(directory)
            return await self._start_in(directory, blueprint, progress)

    async def reattach(self, blueprint: Blueprint) -> LocalSandbox | None:
        directory = SandboxDirectory(self._kept / blueprint.id)
        with host_errors("finding the sandbox again"):
            runtime = directory.runtime()
            if runtime is None:
                # It ended while nobody watched, or the machine did: groups, ids, marks are left.
                await self._end_unwatched(directory)
                return None
            groups = self._groups_of(directory)
            groups.find()
            channel = await self._connect(directory, runtime.token)
        return LocalSandbox(self.name, blueprint, runtime, channel, directory, groups, self._ranges)

    def kept(self) -> list[str]:
        try:
            return os.listdir(self._kept)
        except FileNotFoundError:
            return []

    async def remove(self, id: str) -> None:
        with host_errors("removing the sandbox"):
            await self._remove(SandboxDirectory(self._kept / id))

    async def end(self, id: str) -> None:
        directory = SandboxDirectory(self._kept / id)
        with host_errors("ending the sandbox"):
            if directory.is_marked():
                await self._end_unwatched(directory)

    async def image_view(
        self, blueprint: Blueprint, progress: Progress | None = None
    ) -> View | None:
        with host_errors("looking at the image"):
            return await self._images.view(blueprint, progress)

    def workspace_files(self, blueprint: Blueprint) -> WorkspaceFiles:
        parent = self._runs if blueprint.owned else self._kept
        directory = SandboxDirectory(parent / blueprint.id)
        inside = blueprint.owned or blueprint.ephemeral or directory.image.exists()
        applied = directory.path / "applied"
        return WorkspaceFiles(
            None if inside else str(directory.workspace_upper),
            str(directory.hidden),
            str(applied),
            str(directory.base),
            project_path(blueprint, directory),
            str(directory.view),
        )

    def changed_files(self, blueprint: Blueprint) -> str:
        parent = self._runs if blueprint.owned else self._kept
        return str(SandboxDirectory(parent / blueprint.id).root_upper)

    async def discard_workspace(self, blueprint: Blueprint) -> None:
        directory = SandboxDirectory(self._kept / blueprint.id)
        with host_errors("discarding changes"):
            await remove_guest_files(directory.workspace_upper.parent, idmaps.own_maps())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(directory.path / "applied")
            directory.remove_base()

    # -- how -------------------------------------------------------------------------------------

    async def _end_unwatched(self, directory: SandboxDirectory) -> None:
        """Ends whatever a sandbox without an owner still has of processes, groups and ids."""
        groups = self._groups_of(directory)

        def release() -> None:
            if idmaps.is_host_root():
                self._ranges.release_all(str(directory.path))

        await end_sandbox(directory.process() or 0, directory, groups, release)

    async def _remove(self, directory: SandboxDirectory) -> None:
        """Files only go when nothing runs on them: what can't be ended can be found again."""
        await self._end_unwatched(directory)
        await remove_files(directory, idmaps.own_maps())

    def _groups_of(self, directory: SandboxDirectory) -> SandboxGroups:
        """The groups of a sandbox that somebody else started."""
        return SandboxGroups(self._hierarchy, directory.path.name, directory.groups())

    async def _start_in(
        self, directory: SandboxDirectory, blueprint: Blueprint, progress: Progress | None
    ) -> LocalSandbox:
        """Launches in a directory. On an error nothing runs and no ids or groups are held."""
        try:
            return await self._start_once(directory, blueprint, progress, may_guess=True)
        except _WrongGuessError:
            return await self._start_once(directory, blueprint, progress, may_guess=False)

    async def _start_once(
        self,
        directory: SandboxDirectory,
        blueprint: Blueprint,
        progress: Progress | None,
        *,
        may_guess: bool,
    ) -> LocalSandbox:
        groups = SandboxGroups(self._hierarchy, blueprint.id)
        network: NetworkSockets | None = None
        try:
            directory.record_groups(groups.paths)
            faults.point("launch.marked")
            looked = await self._images.look(blueprint, progress)
            maps = self._choose_ids(blueprint, looked, directory)
            faults.point("launch.ids")
            await self.refuse(blueprint, maps)
            refuse_volumes(blueprint, maps)
            project = await self._project(blueprint, looked.account, maps, directory, may_guess)
            # In a big project to look takes as long as to launch: both at once.
            look = None
            if project is not None and project.guess is not None:
                look = asyncio.ensure_future(asyncio.to_thread(check_guess, project, self._finder))
            root = await self._images.resolve(blueprint, looked, maps, progress)
            root = add_trees(root, project)
            check_places(blueprint, root)
            check_target(project, blueprint, root)
            directory.record_layers(path for stack in root.stacks for path in stack.lowers)
            faults.point("launch.layers")
            upper = choose_upper(blueprint, directory)
            groups.create(self.group_limits(blueprint.limits))
            faults.point("launch.groups")
            self._refuse_unenforceable(blueprint, groups, upper)
            token = os.urandom(TOKEN_BYTES)
            pid, network = await self._launch(
                blueprint, maps, looked.account, root, directory, groups, upper, token, project
            )
            faults.point("launch.launched")
            lines = effective_lines(blueprint, root, maps, groups, upper)
            lines += workspace_lines(project)
            lines += volume_lines(blueprint)
            self.change_effective(lines, blueprint)
            runtime = Runtime(
                process=Process.of(pid),
                token=token,
                maps=maps,
                root=root,
                effective=tuple(lines),
                can_enter=self.can_enter(blueprint),
            )
            directory.record_runtime(runtime)
            faults.point("launch.recorded")
            try:
                channel = await self._connect(directory, token)
            except SandboxUnavailableError as exc:
                if type(exc) is not SandboxUnavailableError:
                    raise
                raise LaunchError(f"the sandbox did not come up: {exc.message}") from None
            if look is not None and not await look:
                channel.close()
                raise _WrongGuessError
        except BaseException:
            if network:
                network.close()
            await self._end_unwatched(directory)
            raise
        return LocalSandbox(
            self.name, blueprint, runtime, channel, directory, groups, self._ranges, network
        )

    async def _connect(self, directory: SandboxDirectory, token: bytes) -> GuestChannel:
        place = directory.path if self.listen is None else directory.engine
        return await GuestChannel.connect(str(place), token)

    async def _project(
        self,
        blueprint: Blueprint,
        account: Account,
        maps: idmaps.IdMaps,
        directory: SandboxDirectory,
        may_guess: bool,
    ) -> Project | None:
        if blueprint.workspace is None:
            return None
        # The first look at a big project takes its time.
        return await asyncio.to_thread(
            find_project,
            blueprint,
            account,
            maps,
            directory,
            self._state_dir,
            self._finder,
            may_guess=may_guess,
        )

    def _choose_ids(
        self, blueprint: Blueprint, looked: Looked, directory: SandboxDirectory
    ) -> idmaps.IdMaps:
        subids = None if idmaps.is_host_root() else idmaps.find_subids()
        if subids is None and not idmaps.is_host_root():
            return idmaps.single_maps(looked.account.uid)
        check_ids(looked.account, blueprint.user)
        if subids is None:
            return idmaps.range_maps(self._ranges.allocate(str(directory.path)))
        owner = _owner(blueprint.image) if image_kind(blueprint.image) == "directory" else None
        return idmaps.subuid_maps(*subids, image_owner=owner)

    def _refuse_unenforceable(
        self, blueprint: Blueprint, groups: SandboxGroups, upper: Upper
    ) -> None:
        """No silent fallback: what was asked for by name holds, or there is no sandbox."""
        for limit in sorted(blueprint.explicit - set(self.features.limits)):
            raise UnenforceableError(
                f"--{limit} can't be enforced by {self.name}",
                hint="use --backend native, or leave the limit out",
                limit=limit,
            )
        for limit in sorted(blueprint.explicit & {"memory", "cpus", "disk"}):
            if limit == "disk":
                reason, remedy = upper.reason, upper.remedy
            else:
                reason, remedy = groups.why_not(limit)
            if reason:
                raise UnenforceableError(
                    f"--{limit} can't be enforced: {reason}",
                    hint=f"{remedy}; or leave the limit out, or accept it with --best-effort",
                    limit=limit,
                )

    async def _launch(
        self,
        blueprint: Blueprint,
        maps: idmaps.IdMaps,
        account: Account,
        root: RootFilesystem,
        directory: SandboxDirectory,
        groups: SandboxGroups,
        upper: Upper,
        token: bytes,
        project: Project | None,
    ) -> tuple[int, NetworkSockets | None]:
        path = None
        if upper.kind == "directory":
            path = str(directory.make_upper())
        elif upper.kind == "image":
            path = str(await make_image(directory.image, upper.size or 0))
        faults.point("launch.files")
        plan = LaunchPlan(
            maps=maps,
            hostname=blueprint.hostname,
            staging=_staging(),
            agent_path=str(agentd_path()),
            capabilities=blueprint.capabilities,
            boot=boot_configuration(blueprint, root, maps, token, groups, self.listen),
            nested_userns=blueprint.nested_userns,
            network=blueprint.network,
            cgroups=groups.join_files,
            upper=path,
            upper_is_image=upper.kind == "image",
        )
        if upper.kind == "memory" and upper.size is not None:
            plan.upper_bytes = upper.size
            plan.upper_inodes = max(4096, upper.size // 4096)
        under_way = Launch(plan, root, groups, maps, account, directory, project)
        self.prepare(under_way, blueprint)
        if blueprint.network and blueprint.network.authority and is_shifted(maps):
            from agentkernel.images.bundles import authority_files

            for name, content in authority_files(root, blueprint.network.authority).items():
                plan.op("write", name, content=content, mode=0o644)
        record = directory.open_record()
        try:
            with listen_in(str(directory.path)) as listener:
                start = functools.partial(launch, str(agentd_path()), plan.encode(), listener)
                if not blueprint.network:
                    return await start(record), None
                with Handover() as handover:
                    pid = await start(record, handover.launcher)
                    return pid, handover.receive_network()
        except LaunchFailure as failure:
            raise self.explain(failure, under_way) from None
        finally:
            os.close(record)


class _WrongGuessError(Exception):
    """A file that looks like a secret came or went since the last sandbox; nothing has run yet."""


def _entries(directory: Path) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0


def _staging() -> str:
    """Where the staging tmpfs is mounted, in a mount namespace of the launcher's: any directory."""
    for path in ("/tmp", "/mnt", "/run", "/var", "/etc"):
        if os.path.isdir(path):
            return path
    return "/usr"


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError as exc:
        raise NotFoundError(f"the image {path} can't be read: {exc.strerror}") from None
