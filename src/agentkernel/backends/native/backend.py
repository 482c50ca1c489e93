"""The native engine: blueprint in, running sandbox out. See `base.Backend` for what must hold."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.backends.base import Backend, Blueprint, Progress
from agentkernel.backends.native import diagnose, idmaps
from agentkernel.backends.native.cgroups import SandboxGroups
from agentkernel.backends.native.directory import (
    Process,
    Runtime,
    SandboxDirectory,
    abandoned,
    layers_in_use,
)
from agentkernel.backends.native.effective import effective_lines
from agentkernel.backends.native.hierarchy import Hierarchy
from agentkernel.backends.native.idranges import IdRanges
from agentkernel.backends.native.launcher import LaunchFailure, launch, listen_in
from agentkernel.backends.native.plan import LaunchPlan, add_root
from agentkernel.backends.native.sandbox import (
    NativeSandbox,
    end_sandbox,
    release_ids,
    remove_files,
)
from agentkernel.backends.native.uppers import Upper, choose_upper, make_image
from agentkernel.errors import NotFoundError, UnenforceableError
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.protocol import TOKEN_BYTES
from agentkernel.images.cache import prune
from agentkernel.images.model import IdView, RootFilesystem
from agentkernel.images.resolve import resolve_image
from agentkernel.security.capabilities import to_mask
from agentkernel.security.seccomp.compiler import compile_profile

ISOLATION = "shared kernel: namespaces, seccomp, no network interface but loopback"
_CONNECT_MS = 30_000
_PROCESS_OOM_SCORE = 200
# A machine's own layers are four or five, with a mark beside each; more means that some are old.
_MANY_LAYER_FILES = 24


class NativeBackend(Backend):
    name = "native"
    isolation = ISOLATION

    def __init__(self, state_dir: Path, *, ranges: IdRanges | None = None) -> None:
        self._state_dir = state_dir
        self._runs = state_dir / "runs"
        self._kept = state_dir / "sandboxes"
        self._images = state_dir / "images"
        self._ranges = ranges or IdRanges()
        self._hierarchy = Hierarchy()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "isolation": self.isolation,
            "pty": True,
            "network": "none",
            "memory_snapshot": False,
            "pause": False,
        }

    async def collect_garbage(self) -> int:
        count = 0
        for directory in abandoned(self._runs):
            await self._end_unwatched(directory)
            await remove_files(directory, _maps_for_removal())
            count += 1
        if _entries(self._images / "layers") > _MANY_LAYER_FILES:
            prune(self._images, layers_in_use(self._runs, self._kept))
        return count

    async def create(self, blueprint: Blueprint, progress: Progress | None = None) -> NativeSandbox:
        parent = self._runs if blueprint.owned else self._kept
        directory = SandboxDirectory.create(parent, blueprint.id, locked=blueprint.owned)
        try:
            return await self._start_in(directory, blueprint, progress)
        except BaseException:
            await remove_files(directory, _maps_for_removal())
            raise

    async def start(self, blueprint: Blueprint, progress: Progress | None = None) -> NativeSandbox:
        directory = SandboxDirectory(self._kept / blueprint.id)
        if not directory.path.is_dir():
            raise NotFoundError("the sandbox's files are gone", hint="remove it and make another")
        await self._end_unwatched(directory)
        return await self._start_in(directory, blueprint, progress)

    async def reattach(self, blueprint: Blueprint) -> NativeSandbox | None:
        directory = SandboxDirectory(self._kept / blueprint.id)
        runtime = directory.runtime()
        if runtime is None:
            return None
        groups = self._groups_of(directory)
        groups.find()
        channel = await GuestChannel.connect(str(directory.path), runtime.token)
        return NativeSandbox(blueprint, runtime, channel, directory, groups, self._ranges)

    def kept(self) -> list[str]:
        try:
            return os.listdir(self._kept)
        except FileNotFoundError:
            return []

    async def remove(self, id: str) -> None:
        directory = SandboxDirectory(self._kept / id)
        await self._end_unwatched(directory)
        await remove_files(directory, _maps_for_removal())

    async def _end_unwatched(self, directory: SandboxDirectory) -> None:
        """Ends whatever a sandbox without an owner still has of processes, groups and ids."""
        await end_sandbox(directory.process() or 0, directory, self._groups_of(directory))
        if idmaps.is_host_root():
            self._ranges.release_all(str(directory.path))

    def _groups_of(self, directory: SandboxDirectory) -> SandboxGroups:
        """The groups of a sandbox that somebody else started."""
        return SandboxGroups(self._hierarchy, directory.path.name, directory.groups())

    async def _start_in(
        self, directory: SandboxDirectory, blueprint: Blueprint, progress: Progress | None
    ) -> NativeSandbox:
        """Launches in a directory. On an error nothing runs and no ids or groups are held."""
        groups = SandboxGroups(self._hierarchy, blueprint.id)
        maps = self._choose_ids(blueprint, directory)
        pid = 0
        try:
            # Making an image takes its time, and there are other sandboxes.
            root = await asyncio.to_thread(self._resolve, blueprint, maps, progress)
            directory.record_layers(path for stack in root.stacks for path in stack.lowers)
            upper = choose_upper(blueprint, directory)
            directory.record_groups(groups.paths)
            groups.create(blueprint.limits)
            _refuse_unenforceable(blueprint, groups, upper)
            token = os.urandom(TOKEN_BYTES)
            pid = await self._launch(blueprint, maps, root, directory, groups, upper, token)
            runtime = Runtime(
                process=Process.of(pid),
                token=token,
                maps=maps,
                root=root,
                effective=effective_lines(blueprint, root, maps, groups, upper),
            )
            directory.record_runtime(runtime)
            channel = await GuestChannel.connect(str(directory.path), token)
        except BaseException:
            await end_sandbox(pid, directory, groups)
            release_ids(maps, directory, self._ranges)
            raise
        return NativeSandbox(blueprint, runtime, channel, directory, groups, self._ranges)

    def _choose_ids(self, blueprint: Blueprint, directory: SandboxDirectory) -> idmaps.IdMaps:
        default = idmaps.guest_uid(blueprint.user)
        if idmaps.is_host_root():
            return idmaps.range_maps(self._ranges.allocate(str(directory.path)))
        subids = idmaps.find_subids()
        if subids is None:
            return idmaps.single_maps(default)
        owner = None if blueprint.image == "host" else _owner(blueprint.image)
        return idmaps.subuid_maps(*subids, image_owner=owner)

    def _resolve(
        self, blueprint: Blueprint, maps: idmaps.IdMaps, progress: Progress | None
    ) -> RootFilesystem:
        view = IdView(
            kind=maps.mode,
            guest_uid=idmaps.guest_uid(blueprint.user),
            host_uid=maps.root_owner,
        )
        return resolve_image(
            blueprint.image,
            cache_dir=self._images,
            ids=view,
            toolchains=blueprint.toolchains,
            progress=progress,
            environment=_outside(blueprint),
            protected=(self._state_dir,),
        )

    async def _launch(
        self,
        blueprint: Blueprint,
        maps: idmaps.IdMaps,
        root: RootFilesystem,
        directory: SandboxDirectory,
        groups: SandboxGroups,
        upper: Upper,
        token: bytes,
    ) -> int:
        path = None
        if upper.kind == "directory":
            path = str(directory.make_upper())
        elif upper.kind == "image":
            path = str(await make_image(directory, upper.size or 0))
        plan = LaunchPlan(
            maps=maps,
            hostname=blueprint.hostname,
            staging=_staging(),
            agent_path=str(agentd_path()),
            capabilities=blueprint.capabilities,
            boot=_boot_configuration(blueprint, maps, token, groups),
            nested_userns=blueprint.nested_userns,
            cgroups=groups.join_files,
            upper=path,
            upper_is_image=upper.kind == "image",
        )
        if upper.kind == "memory" and upper.size is not None:
            plan.upper_bytes = upper.size
            plan.upper_inodes = max(4096, upper.size // 4096)
        add_root(plan, root, blueprint.limits, groups)
        record = directory.open_record()
        try:
            with listen_in(str(directory.path)) as listener:
                return await launch(str(agentd_path()), plan.encode(), listener, record)
        except LaunchFailure as failure:
            raise diagnose.explain(failure, as_root=maps.mode == "range", upper=path) from None
        finally:
            os.close(record)


def _refuse_unenforceable(blueprint: Blueprint, groups: SandboxGroups, upper: Upper) -> None:
    """No silent fallback: what was asked for by name holds, or there is no sandbox."""
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


def _boot_configuration(
    blueprint: Blueprint, maps: idmaps.IdMaps, token: bytes, groups: SandboxGroups
) -> bytes:
    """What agentd reads from descriptor 4; keys are in the guest protocol page."""
    limits = blueprint.limits
    boot: dict[str, Any] = {
        "token": token,
        "ephemeral": blueprint.owned,
        "connect_ms": _CONNECT_MS,
        "cwd": "/",
        "user": blueprint.user,
        "caps": to_mask(blueprint.capabilities),
        "seccomp": compile_profile(
            blueprint.seccomp, blueprint.capabilities, allow_userns=blueprint.nested_userns
        ),
        "oom_score_adj": _PROCESS_OOM_SCORE,
    }
    if maps.single_id is not None:
        boot["single_uid"] = maps.single_id
    if limits.nofile is not None:
        boot["nofile"] = limits.nofile
    if "pids" not in groups.enforced:
        boot["nproc"] = limits.pids
    return msgspec.msgpack.encode(boot)


def _outside(blueprint: Blueprint) -> Mapping[str, str]:
    """The environment that says where toolchains are: the user's, or else our own."""
    if not blueprint.host_env:
        return os.environ
    return {"HOME": os.environ.get("HOME", ""), **blueprint.host_env}


def _entries(directory: Path) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0


def _maps_for_removal() -> idmaps.IdMaps:
    """Ids that own whatever a sandbox of this user may have left. Root needs none."""
    if idmaps.is_host_root():
        return idmaps.range_maps(0)
    subids = idmaps.find_subids()
    return idmaps.subuid_maps(*subids, image_owner=None) if subids else idmaps.single_maps(0)


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
