"""The native engine: blueprint in, running sandbox out. See `base.Backend` for what must hold."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.backends.base import Backend, Blueprint, EffectiveLine, Progress
from agentkernel.backends.native import diagnose, idmaps
from agentkernel.backends.native.cgroups import Hierarchy, SandboxGroups
from agentkernel.backends.native.directory import SandboxDirectory, abandoned, layers_in_use
from agentkernel.backends.native.effective import effective_lines
from agentkernel.backends.native.idranges import IdRanges
from agentkernel.backends.native.launcher import (
    LaunchFailure,
    launch,
    listen_in,
    remove_upper,
)
from agentkernel.backends.native.plan import LaunchPlan, add_root
from agentkernel.errors import AgentKernelError, NotFoundError, UnenforceableError
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


class NativeSandbox:
    """A running sandbox of this engine. Made by NativeBackend.create."""

    def __init__(
        self,
        blueprint: Blueprint,
        root: RootFilesystem,
        maps: idmaps.IdMaps,
        directory: SandboxDirectory,
        groups: SandboxGroups,
        ranges: IdRanges,
    ) -> None:
        self.id = blueprint.id
        self.blueprint = blueprint
        self.root = root
        self.maps = maps
        self.pid = 0
        self.channel: GuestChannel
        self.effective: tuple[EffectiveLine, ...] = ()
        self._directory = directory
        self._groups = groups
        self._ranges = ranges
        self._destroyed = False

    @property
    def environment(self) -> Mapping[str, str]:
        return self.root.environment

    def check_user(self, user: str) -> None:
        only = self.maps.single_id
        name = user.partition(":")[0]
        if only is not None and name in ("root", "user") and idmaps.guest_uid(name) != only:
            raise idmaps.refuse_other_user(only, name)

    def was_out_of_memory(self) -> bool:
        return self._groups.was_out_of_memory()

    async def destroy(self) -> None:
        if self._destroyed:
            return
        self._destroyed = True
        if hasattr(self, "channel"):
            self.channel.close()
        if self.pid:
            await _end_process(self.pid)
        await _remove_groups(self._groups)
        await _remove_directory(self._directory, self.maps)
        if self.maps.mode == "range":
            self._ranges.release(self.maps.outer_uids[0][1], str(self._directory.path))


class NativeBackend(Backend):
    name = "native"
    isolation = ISOLATION

    def __init__(self, state_dir: Path, *, ranges: IdRanges | None = None) -> None:
        self._state_dir = state_dir
        self._sandboxes = state_dir / "sandboxes"
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
        for directory in abandoned(self._sandboxes):
            # Its agentd ends with its owner's connection, unless something holds it up.
            if pid := directory.recorded_process():
                await _end_process(pid)
            await _remove_groups(SandboxGroups(self._hierarchy, directory.path.name))
            await _remove_directory(directory, _maps_for_removal())
            if idmaps.is_host_root():
                self._ranges.release_all(str(directory.path))
            count += 1
        if _entries(self._images / "layers") > _MANY_LAYER_FILES:
            prune(self._images, layers_in_use(self._sandboxes))
        return count

    async def create(self, blueprint: Blueprint, progress: Progress | None = None) -> NativeSandbox:
        directory = SandboxDirectory.create(self._sandboxes, blueprint.id)
        groups = SandboxGroups(self._hierarchy, blueprint.id)
        maps: idmaps.IdMaps | None = None
        try:
            maps = self._choose_ids(blueprint, directory)
            root = self._resolve(blueprint, maps, progress)
            directory.record_layers(path for stack in root.stacks for path in stack.lowers)
            sandbox = NativeSandbox(blueprint, root, maps, directory, groups, self._ranges)
        except BaseException:
            directory.remove()
            if maps and maps.mode == "range":
                self._ranges.release(maps.outer_uids[0][1], str(directory.path))
            raise
        try:
            groups.create(blueprint.limits)
            self._refuse_unenforceable(blueprint, groups)
            await self._launch(sandbox, directory, groups)
        except BaseException:
            await sandbox.destroy()
            raise
        sandbox.effective = effective_lines(blueprint, root, maps, groups)
        return sandbox

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
            protected=(self._state_dir,),
        )

    def _refuse_unenforceable(self, blueprint: Blueprint, groups: SandboxGroups) -> None:
        reason = self._hierarchy.reason or "no such controller"
        for limit in sorted(blueprint.explicit & {"memory", "cpus"}):
            if limit not in groups.enforced:
                raise UnenforceableError(
                    f"--{limit} can't be enforced: {reason}",
                    hint="run as root or with a delegated control group, or leave the limit out",
                )

    async def _launch(
        self, sandbox: NativeSandbox, directory: SandboxDirectory, groups: SandboxGroups
    ) -> None:
        blueprint, maps = sandbox.blueprint, sandbox.maps
        token = os.urandom(TOKEN_BYTES)
        upper = str(directory.make_upper()) if blueprint.limits.disk_bytes is None else None
        plan = LaunchPlan(
            maps=maps,
            hostname=blueprint.hostname,
            staging=_staging(),
            agent_path=str(agentd_path()),
            capabilities=blueprint.capabilities,
            boot=_boot_configuration(blueprint, maps, token, groups),
            nested_userns=blueprint.nested_userns,
            cgroups=groups.join_files,
            upper=upper,
        )
        if blueprint.limits.disk_bytes is not None:
            plan.upper_bytes = blueprint.limits.disk_bytes
            plan.upper_inodes = max(4096, blueprint.limits.disk_bytes // 4096)
        add_root(plan, sandbox.root, blueprint.limits, groups)
        try:
            with listen_in(str(directory.path)) as listener:
                sandbox.pid = await launch(str(agentd_path()), plan.encode(), listener)
            directory.record_process(sandbox.pid)
        except LaunchFailure as failure:
            raise diagnose.explain(failure, as_root=maps.mode == "range", upper=upper) from None
        sandbox.channel = await GuestChannel.connect(str(directory.path), token)


def _boot_configuration(
    blueprint: Blueprint, maps: idmaps.IdMaps, token: bytes, groups: SandboxGroups
) -> bytes:
    """What agentd reads from descriptor 4; keys are in the guest protocol page."""
    limits = blueprint.limits
    boot: dict[str, Any] = {
        "token": token,
        "ephemeral": blueprint.ephemeral,
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


async def _remove_directory(directory: SandboxDirectory, maps: idmaps.IdMaps) -> None:
    if directory.upper.exists():
        plan = LaunchPlan(maps, "", "", "", frozenset(), b"")
        plan.source(str(directory.upper), writable=True)
        try:
            await remove_upper(str(agentd_path()), plan.encode())
        except LaunchFailure as failure:
            raise AgentKernelError(
                f"files of a sandbox can't be removed: {failure.detail}: "
                f"{os.strerror(failure.errno)}"
            ) from None
    directory.remove()


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


async def _end_process(pid: int) -> None:
    """Kills PID 1 of a sandbox, and with it everything inside; returns when it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, gone.set_result, None)
        gone.add_done_callback(lambda _: loop.remove_reader(fd))
        await gone
        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 (never blocks: it has ended)
    except (ProcessLookupError, ChildProcessError):
        pass
    finally:
        os.close(fd)


async def _remove_groups(groups: SandboxGroups) -> None:
    """The kernel lets go of a group a moment after its last process."""
    for _attempt in range(600):
        if groups.remove():
            return
        await asyncio.sleep(0.1 if _attempt > 20 else 0.002)
    raise AgentKernelError("a control group of the sandbox can't be removed")
