"""gVisor: the guest's kernel is a program, runsc's sentry, with a system call filter of its own.

How the sentry takes over a guest's system calls is its *platform*. Which of them work here is found
by trying: a sandbox that runs `true`, within a deadline. The answer is kept for as long as the
program and the machine's kernel stay the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from pathlib import Path

import msgspec

from agentkernel.backends.base import NOT_ENFORCED, Blueprint, EffectiveLine, Features
from agentkernel.backends.local import idmaps
from agentkernel.backends.local.backend import Launch
from agentkernel.backends.local.plan import add_files, add_stacks
from agentkernel.backends.local.sandbox import LocalSandbox
from agentkernel.backends.local.volumes import stage_volumes
from agentkernel.backends.local.workspace import add_workspace
from agentkernel.backends.oci.backend import OciBackend, refuse_shifted, replace_line
from agentkernel.backends.oci.config import SOCKET_DIRECTORY, sentry_config
from agentkernel.backends.oci.programs import need_program
from agentkernel.errors import HostError, SandboxUnavailableError, UnsupportedError
from agentkernel.guest.processes import GuestProcess, Outcome, ProcessOptions
from agentkernel.ids import new_id
from agentkernel.security.profiles import Limits

# The fastest that needs nothing of the machine first; `kvm` may be there and still run nothing.
PLATFORMS = ("systrap", "ptrace", "kvm")
_TRY_SECONDS = 15.0
_ANSWER = "gvisor-platform.json"


class _Answer(msgspec.Struct, frozen=True):
    """What was tried, and what came of it."""

    program: str
    changed: float
    kernel: str
    ids: str
    platform: str


class GvisorBackend(OciBackend):
    name = "gvisor"
    program = "runsc"
    isolation = "user-space kernel: gVisor between the guest and the machine's own"
    features = Features(
        network="gateway", limits=("memory", "cpus", "disk", "nofile"), pid1_guarded=False
    )
    listen = f"{SOCKET_DIRECTORY}/s"

    def __init__(self, state_dir: Path, *, platform: str = "") -> None:
        super().__init__(state_dir)
        self.platform = platform

    async def refuse(self, blueprint: Blueprint, maps: idmaps.IdMaps) -> None:
        await super().refuse(blueprint, maps)
        refuse_shifted(self.program, maps)
        if maps.single_id:
            raise UnsupportedError(
                "files made by gVisor belong to one id here, and that is root's inside: "
                f"no sandbox can run as {blueprint.user!r}",
                hint="use --user root or --backend native, or give your account subuids",
            )
        if not self.platform:
            self.platform = await self._find_platform(blueprint, maps)

    async def _find_platform(self, blueprint: Blueprint, maps: idmaps.IdMaps) -> str:
        program = need_program(self.name, self.program)
        wanted = _Answer(program, os.stat(program).st_mtime, os.uname().release, maps.mode, "")
        path = self._state_dir / _ANSWER
        with contextlib.suppress(OSError, msgspec.DecodeError):
            answer = msgspec.json.decode(path.read_bytes(), type=_Answer)
            if msgspec.structs.replace(answer, platform="") == wanted:
                return answer.platform
        failures = []
        for platform in PLATFORMS:
            why = await self._try(platform, blueprint)
            if why is None:
                answer = msgspec.structs.replace(wanted, platform=platform)
                temporary = path.with_name(f".{_ANSWER}-{os.getpid()}")
                temporary.write_bytes(msgspec.json.encode(answer))
                temporary.rename(path)
                return platform
            failures.append(f"{platform}: {why}")
        raise HostError(
            f"{program} runs nothing here ({'; '.join(failures)})",
            hint="install a current runsc (gvisor.dev), or set AGENTKERNEL_GVISOR to where one is",
        )

    async def _try(self, platform: str, blueprint: Blueprint) -> str | None:
        """None if a sandbox on `platform` ran a command; else why not."""
        # Of the machine's own programs: an image may have none.
        probe = msgspec.structs.replace(
            blueprint, id=new_id(), image="host", user="root", owned=True, explicit=frozenset()
        )
        try:
            async with asyncio.timeout(_TRY_SECONDS):
                sandbox = await GvisorBackend(self._state_dir, platform=platform).create(probe)
                try:
                    return await _run_true(sandbox)
                finally:
                    await sandbox.destroy()
        except TimeoutError:
            return f"no answer within {_TRY_SECONDS:g} s"
        except SandboxUnavailableError as exc:
            return exc.message

    def command(self, launch: Launch, blueprint: Blueprint) -> tuple[list[str], list[str]]:
        before = [
            f"--platform={self.platform}",
            # The sentry's sockets are then those of the namespace that the keeper is in.
            f"--network={'host' if blueprint.network else 'none'}",
            # The groups are ours, and the runtime is in them already.
            "--ignore-cgroups",
            # Changes go to the sandbox's own upper; nobody else changes the files.
            "--overlay2=none",
            "--file-access=exclusive",
            # For agentd's socket. A guest can make sockets, to which nobody outside connects; to
            # those of the host it can not connect.
            "--host-uds=create",
        ]
        if launch.maps.mode == "single":
            before.append("--rootless")
        if "CAP_NET_RAW" in blueprint.capabilities:
            # Raw sockets of the sentry's own loopback. Without it the capability would be missing.
            # Of the machine's, with a network, the sentry itself may make none.
            before.append("--net-raw")
        return before, []

    def prepare(self, launch: Launch, blueprint: Blueprint) -> None:
        launch.plan.engine_directory = str(launch.directory.make_engine())
        add_stacks(launch.plan, launch.root)
        add_files(launch.plan, launch.root)
        add_workspace(launch.plan, launch.project, launch.account)
        volumes = stage_volumes(launch.plan, blueprint, launch.account, self._state_dir)
        self._set_up_engine(launch, blueprint, sentry_config(launch, blueprint, volumes))

    def can_enter(self, blueprint: Blueprint) -> bool:
        """Without a network the sentry is in a namespace of its own."""
        return blueprint.network is not None

    def group_limits(self, limits: Limits) -> Limits:
        """The sentry counts no processes; one is about two tasks of the machine, beside its own."""
        return dataclasses.replace(limits, pids=_host_tasks(limits))

    def change_effective(self, lines: list[EffectiveLine], blueprint: Blueprint) -> None:
        replace_line(lines, "isolation", "user-space kernel", f"gVisor, platform {self.platform}")
        if blueprint.network is None and not blueprint.without_network:
            replace_line(
                lines,
                "network",
                "none: loopback only",
                "the sentry's own network stack, without an interface",
            )
        replace_line(lines, "nested user namespaces", *_nested(blueprint))
        for number, line in enumerate(lines):
            if line.what == "pids":
                tasks = _host_tasks(blueprint.limits)
                words = (
                    f"{NOT_ENFORCED} by gVisor; more than {tasks} tasks on the machine "
                    "end the sandbox"
                    if line.enforced_by == "pids control group"
                    else f"{NOT_ENFORCED} by gVisor"
                )
                lines[number] = EffectiveLine("pids", line.value, words)
        lines.append(
            EffectiveLine(
                "PID 1",
                "guest root can end its own sandbox by a signal to it",
                f"{NOT_ENFORCED} by gVisor",
            )
        )


def _host_tasks(limits: Limits) -> int:
    return 2 * limits.pids + 256


def _nested(blueprint: Blueprint) -> tuple[str, str]:
    if blueprint.nested_userns:
        return "allowed", "asked for by the spec; they are the sentry's, not the machine's"
    return "denied", "seccomp"


async def _run_true(sandbox: LocalSandbox) -> str | None:
    options = ProcessOptions(env=dict(sandbox.environment), user="0")
    process = GuestProcess.start(sandbox.channel, ["true"], options)
    while await process.output() is not None:
        pass
    status = process.status
    if status is None or status.outcome is Outcome.NOT_STARTED:
        # An agentd that lives but starts nothing misses a call of the kernel, which the sentry is.
        reason = status.errno if status else "lost"
        return f"this runsc is too old to start processes ({reason})"
    return None if status.exit_code == 0 else f"`true` ended with {status}"
