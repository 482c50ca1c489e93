"""A running sandbox of this machine, and how one ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from agentkernel import faults
from agentkernel.backends.base import (
    NOT_ENFORCED,
    Blueprint,
    EffectiveLine,
    LimitHit,
    NetworkSockets,
    SandboxUsage,
)
from agentkernel.backends.local import idmaps
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.diagnose import explain
from agentkernel.backends.local.directory import Runtime, SandboxDirectory
from agentkernel.backends.local.effective import network_line
from agentkernel.backends.local.idranges import IdRanges
from agentkernel.backends.local.launcher import LaunchFailure, remove_upper
from agentkernel.backends.local.network import count_refusals, open_rules, open_sockets
from agentkernel.backends.local.plan import LaunchPlan
from agentkernel.backends.local.shortages import host_error, host_errors
from agentkernel.backends.local.uppers import wait_unmounted
from agentkernel.errors import (
    AgentKernelError,
    LaunchError,
    SandboxUnavailableError,
    UnsupportedError,
)
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.channel import GuestChannel
from agentkernel.images.model import RootFilesystem

_SHUTDOWN_ANSWER_S = 5.0
_STATS_S = 1.0
_COUNTED_BY_AGENTD = "processes that live or were waited for, as agentd sees them"
_HIT = {
    "memory": "the sandbox has no more than {} of memory: the kernel ended a process in it",
    "pids": "the sandbox has no more than {} processes and threads: one could not be started",
}


class LocalSandbox:
    """A running sandbox. `pid` is the host's number of the process that is all of it to the host:
    its PID 1, or the keeper of the runtime that made it. Made by LocalBackend."""

    def __init__(
        self,
        backend: str,
        blueprint: Blueprint,
        runtime: Runtime,
        channel: GuestChannel,
        directory: SandboxDirectory,
        groups: SandboxGroups,
        ranges: IdRanges,
        network: NetworkSockets | None = None,
    ) -> None:
        self.id = blueprint.id
        self.backend = backend
        self.blueprint = blueprint
        self.channel = channel
        self.pid = runtime.process.pid
        self._runtime = runtime
        self._directory = directory
        self._groups = groups
        self._ranges = ranges
        # Made with the sandbox, and not taken yet.
        self._network = network
        self._has_rules = blueprint.network is not None
        # To read by what its rules have counted: that of the sockets which were given away, while
        # it is open, or else our own.
        self._given_away: socket.socket | None = None
        self._rules: socket.socket | None = None
        self._rules_lock = asyncio.Lock()
        self._has_ended = False
        self._last_usage: SandboxUsage | None = None
        # What an owner before us has told, or had no chance to: not ours to tell again.
        self._hits_told = groups.hits()

    @property
    def root(self) -> RootFilesystem:
        return self._runtime.root

    @property
    def maps(self) -> idmaps.IdMaps:
        return self._runtime.maps

    @property
    def effective(self) -> tuple[EffectiveLine, ...]:
        """As it was started, but for a way out that came later."""
        if not self._has_rules:
            return self._runtime.effective
        now = network_line(True)
        return tuple(now if line.what == now.what else line for line in self._runtime.effective)

    @property
    def environment(self) -> Mapping[str, str]:
        network = self.blueprint.network
        return {**self._runtime.root.environment, **(network.environment if network else {})}

    def check_user(self, user: str) -> None:
        only = self.maps.single_id
        name = user.partition(":")[0]
        known = {"root": "0"}
        if self.root.kind != "oci":
            known["user"] = str(idmaps.USER_ID)
        number = known.get(name, name)
        # Of other names agentd knows, by the sandbox's own passwd.
        if only is not None and number.isascii() and number.isdecimal() and number != str(only):
            raise idmaps.refuse_other_user(only, name)

    async def open_network(self) -> NetworkSockets:
        sockets, self._network = self._network, None
        if sockets is None:
            if not self._runtime.can_enter:
                raise UnsupportedError(
                    f"a sandbox of {self.backend} that was started without a network gets none "
                    "while it runs",
                    hint="stop it, change its network, and start it again",
                )
            try:
                sockets = await open_sockets(str(agentd_path()), self.pid)
            except LaunchFailure as failure:
                raise self._explain(failure) from None
            self._has_rules = True
        self._given_away = sockets.rules
        return sockets

    async def network_refusals(self) -> dict[str, int]:
        if not self._has_rules or self._has_ended:
            return {}
        async with self._rules_lock:
            if self._given_away is not None and self._given_away.fileno() >= 0:
                return count_refusals(self._given_away, self.pid)
            if self._rules is None:
                try:
                    self._rules = await open_rules(str(agentd_path()), self.pid)
                except LaunchFailure as failure:
                    raise self._explain(failure) from None
            return count_refusals(self._rules, self.pid)

    def _explain(self, failure: LaunchFailure) -> AgentKernelError:
        return explain(failure, as_root=self.maps.mode == "range", upper=None)

    def _close_network(self) -> None:
        for sockets in (self._network, self._rules):
            if sockets:
                sockets.close()
        self._network = self._rules = None

    def was_out_of_memory(self) -> bool:
        return self._groups.was_out_of_memory()

    async def usage(self) -> SandboxUsage | None:
        if not self._has_ended:
            self._last_usage = await self._usage_now()
        return self._last_usage

    async def _usage_now(self) -> SandboxUsage | None:
        counted = self._groups.usage()
        try:
            stats = await self.channel.call("stats", seconds=_STATS_S)
        except SandboxUnavailableError:
            return counted
        told = _by_agentd(stats)
        if counted and not _are_counted(self.effective):
            counted = msgspec.structs.replace(counted, processes=told.processes)
        disk = stats.get("disk_used_kb") if _is_bounded(self.effective) else None
        return msgspec.structs.replace(counted or told, disk_bytes=_kilobytes(disk))

    def limit_hits(self) -> list[LimitHit]:
        hits, told = self._groups.hits(), self._hits_told
        self._hits_told = hits
        limits = {line.what: line.value for line in self.effective}
        return [
            LimitHit(limit=name, times=count - told[name], words=_HIT[name].format(limits[name]))
            for name, count in hits.items()
            if count > told[name]
        ]

    def lives(self) -> bool:
        with host_errors("looking for the sandbox"):
            return not self._has_ended and self._runtime.process.lives()

    async def stop(self, grace_seconds: float = 0.0) -> None:
        if grace_seconds > 0 and not self.channel.closed.done():
            await _ask_to_shut_down(self.channel, grace_seconds)
        self.channel.close()
        self._close_network()
        with host_errors("ending the sandbox"):
            await end_process(self.pid)
        # Nothing runs any more, and the groups still know what did. Read if anybody has ever asked.
        if not self._has_ended and self._last_usage and (final := self._groups.usage()):
            disk = self._last_usage.disk_bytes
            self._last_usage = msgspec.structs.replace(final, disk_bytes=disk)
        self._has_ended = True
        with host_errors("ending the sandbox"):
            await end_sandbox(0, self._directory, self._groups, self._release_ids)

    def _release_ids(self) -> None:
        """Once no process has them any more. What is on disk has canonical ids, whoever comes."""
        if self.maps.mode == "range":
            self._ranges.release(self.maps.outer_uids[0][1], str(self._directory.path))

    async def destroy(self) -> None:
        await self.stop()
        with host_errors("removing the sandbox"):
            faults.point("remove.ended")
            await remove_files(self._directory, self.maps)


async def _ask_to_shut_down(channel: GuestChannel, grace_seconds: float) -> None:
    """TERM to everything, then KILL; whatever comes of it, PID 1 is ended afterwards."""
    seconds = grace_seconds + _SHUTDOWN_ANSWER_S
    try:
        await channel.call("shutdown", seconds=seconds, grace_ms=round(grace_seconds * 1000))
    except SandboxUnavailableError:
        return


async def end_sandbox(
    pid: int, directory: SandboxDirectory, groups: SandboxGroups, release_ids: Callable[[], None]
) -> None:
    """Everything of a sandbox but its files. Idempotent; each step is safe to repeat. The marks
    that tell of the rest go last."""
    if pid:
        await end_process(pid)
    faults.point("end.killed")
    await _remove_groups(groups)
    faults.point("end.groups")
    await wait_unmounted(directory)
    release_ids()
    faults.point("end.ids")
    directory.forget_runtime()


async def remove_files(directory: SandboxDirectory, maps: idmaps.IdMaps) -> None:
    """The directory with all that a guest made of it. Idempotent.

    Raises HostError where the system forbids the user namespace that the files belong to.
    """
    await remove_guest_files(directory.upper, maps)
    directory.remove()


async def remove_guest_files(path: Path, maps: idmaps.IdMaps) -> None:
    """A directory that a guest has shaped. Idempotent. Raises as above."""
    if _is_gone(path) or _remove_if_empty(path):
        return
    plan = LaunchPlan(maps, "", "", "", frozenset(), b"")
    plan.source(str(path), writable=True)
    try:
        await remove_upper(str(agentd_path()), plan.encode())
    except LaunchFailure as failure:
        if failure.stage == "launcher":
            raise LaunchError(
                f"files of a sandbox can't be removed: {failure.detail}", hint="remove it again"
            ) from None
        if failure.stage != "remove":
            raise explain(failure, as_root=maps.mode == "range", upper=None) from None
        error = OSError(failure.errno, os.strerror(failure.errno), failure.detail)
        raise host_error(error, "removing files of a sandbox") from None


def _is_gone(path: Path) -> bool:
    return not path.exists()


def _remove_if_empty(path: Path) -> bool:
    """True if no guest ever wrote there: that takes no user namespace, which may be forbidden."""
    try:
        path.rmdir()
    except OSError:
        return False
    return True


async def end_process(pid: int) -> None:
    """Kills the process that is the sandbox, with everything inside; returns when it is gone."""
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


def _is_bounded(lines: tuple[EffectiveLine, ...]) -> bool:
    """The file system at / is the sandbox's own: what is used of it is what its files take."""
    return any(line.what == "disk" and line.enforced_by.startswith("size of") for line in lines)


def _are_counted(lines: tuple[EffectiveLine, ...]) -> bool:
    """The control group's processes are the guest's, and not those of an engine that stand for
    them."""
    return not any(
        line.what == "pids" and line.enforced_by.startswith(NOT_ENFORCED) for line in lines
    )


def _by_agentd(stats: Mapping[str, object]) -> SandboxUsage:
    spent = _count(stats.get("cpu_us"))
    return SandboxUsage(
        counted_by=_COUNTED_BY_AGENTD,
        cpu_seconds=None if spent is None else spent / 1e6,
        memory_bytes=_kilobytes(stats.get("memory_kb")),
        processes=_count(stats.get("procs")),
    )


def _kilobytes(value: object) -> int | None:
    count = _count(value)
    return None if count is None else count * 1024


def _count(value: object) -> int | None:
    """A number of agentd's, if it is one."""
    return value if type(value) is int and 0 <= value < 1 << 62 else None


async def _remove_groups(groups: SandboxGroups) -> None:
    """The kernel lets go of a group a moment after its last process."""
    for attempt in range(600):
        if groups.remove():
            return
        await asyncio.sleep(0.1 if attempt > 20 else 0.002)
    raise AgentKernelError("a control group of the sandbox can't be removed")
