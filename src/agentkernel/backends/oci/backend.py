"""The OCI engine: our root, launcher and agentd; somebody else's container around them.

The runtime runs in the launcher's outer namespaces, below a keeper (agentd/src/launch_engine.c),
without any right on the host. Nothing of it outlives the keeper, so the runtime is never asked to
stop, kill or delete: its state is a directory that goes with the sandbox.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod

from agentkernel.backends.base import Blueprint, EffectiveLine, Features
from agentkernel.backends.local import idmaps
from agentkernel.backends.local.backend import Launch, LocalBackend
from agentkernel.backends.local.launcher import LaunchFailure
from agentkernel.backends.local.plan import add_files, add_groups, add_stacks
from agentkernel.backends.local.volumes import add_volumes
from agentkernel.backends.local.workspace import add_workspace
from agentkernel.backends.oci.config import container_config
from agentkernel.backends.oci.programs import need_program
from agentkernel.errors import AgentKernelError, HostError, LaunchError, UnsupportedError

_LIMITS = ("memory", "cpus", "pids", "disk", "nofile")


class OciBackend(LocalBackend):
    """What all runtimes share."""

    program: str

    async def refuse(self, blueprint: Blueprint, maps: idmaps.IdMaps) -> None:
        need_program(self.name, self.program)

    @abstractmethod
    def command(self, launch: Launch, blueprint: Blueprint) -> tuple[list[str], list[str]]:
        """Words for the runtime before `run --detach`, and after it."""

    def _set_up_engine(self, launch: Launch, blueprint: Blueprint, config: bytes) -> None:
        plan = launch.plan
        program = plan.source(need_program(self.name, self.program), file=True)
        state = plan.staged(plan.source(plan.engine_directory, writable=True)) + "/state"
        plan.op("stage", "config.json", content=config)
        plan.engine_log = f"{plan.bundle}/log"
        plan.engine_listens = self.listen is not None
        before, after = self.command(launch, blueprint)
        plan.engine = [
            plan.staged(program),
            *("--root", state, "--log", plan.engine_log, "--log-format", "json"),
            *before,
            *("run", "--detach", "--bundle", plan.bundle, "--pid-file", f"{plan.bundle}/pid"),
            *after,
            blueprint.id,
        ]

    def explain(self, failure: LaunchFailure, launch: Launch) -> AgentKernelError:
        if failure.stage == "engine-exec":
            return HostError(
                f"{self.program} can't be executed: {os.strerror(failure.errno)}",
                hint=f"check the {self.program} of this machine",
            )
        if failure.stage in ("engine", "engine-agent"):
            when = "could not start" if failure.stage == "engine" else "ended while starting"
            words = _message(failure.detail) or "without a word"
            return LaunchError(f"{self.program} {when} the sandbox: {words}", stage=failure.stage)
        return super().explain(failure, launch)


class ContainerBackend(OciBackend):
    """Runtimes that make namespaces of the machine's own kernel."""

    isolation = "shared kernel: namespaces by {}, seccomp, no network interface but loopback"
    features = Features(network="gateway", limits=_LIMITS)

    def __init_subclass__(cls) -> None:
        cls.isolation = ContainerBackend.isolation.format(cls.program)

    async def refuse(self, blueprint: Blueprint, maps: idmaps.IdMaps) -> None:
        await super().refuse(blueprint, maps)
        if maps.single_id:
            raise UnsupportedError(
                f"{self.program} needs id 0 inside, and this user has no other: no sandbox can run "
                f"as {blueprint.user!r}",
                hint="use --user root or --backend native, or give your account subuids",
            )
        refuse_shifted(self.program, maps)

    def command(self, launch: Launch, blueprint: Blueprint) -> tuple[list[str], list[str]]:
        return [], ["--preserve-fds", "3"]

    def prepare(self, launch: Launch, blueprint: Blueprint) -> None:
        launch.plan.engine_directory = str(launch.directory.make_engine())
        add_stacks(launch.plan, launch.root)
        add_files(launch.plan, launch.root)
        add_workspace(launch.plan, launch.project, launch.account)
        add_volumes(launch.plan, blueprint, launch.account, self._state_dir)
        add_groups(launch.plan, launch.groups)
        self._set_up_engine(launch, blueprint, container_config(launch, blueprint))

    def change_effective(self, lines: list[EffectiveLine], blueprint: Blueprint) -> None:
        replace_line(
            lines,
            "isolation",
            "shared kernel",
            f"{self.program}: user, mount, pid, ipc and uts namespaces; network and cgroup "
            "namespaces around it",
        )


class RuncBackend(ContainerBackend):
    name = "runc"
    program = "runc"


class CrunBackend(ContainerBackend):
    name = "crun"
    program = "crun"

    def command(self, launch: Launch, blueprint: Blueprint) -> tuple[list[str], list[str]]:
        # The groups are ours, and the runtime is in them already. It gives up on a machine that has
        # v1 and v2 side by side, whatever it is told, unless it sees neither.
        launch.plan.engine_without_groups = True
        before, after = super().command(launch, blueprint)
        return [*before, "--cgroup-manager", "disabled"], after


def refuse_shifted(program: str, maps: idmaps.IdMaps) -> None:
    if maps.mode == "subuid" and maps.upper_owner:
        raise UnsupportedError(
            f"{program} can't use an image whose files belong to this user's subuids",
            hint="use --backend native, or an image of your own files",
        )


def replace_line(lines: list[EffectiveLine], what: str, value: str, enforced_by: str) -> None:
    for number, line in enumerate(lines):
        if line.what == what:
            lines[number] = EffectiveLine(what, value, enforced_by)


def _message(line: str) -> str:
    """The runtime's own words out of a line of its log; what was cut off in the middle as it is."""
    try:
        return str(json.loads(line)["msg"])
    except (ValueError, KeyError, TypeError):
        return line.partition('"msg":"')[2] or line
