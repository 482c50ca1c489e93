"""The native engine: the launcher makes the guest's namespaces and agentd is their PID 1."""

from __future__ import annotations

from agentkernel.backends.base import Blueprint, Features
from agentkernel.backends.local.backend import Launch, LocalBackend
from agentkernel.backends.local.plan import add_root
from agentkernel.backends.local.volumes import add_volumes
from agentkernel.backends.local.workspace import add_workspace


class NativeBackend(LocalBackend):
    name = "native"
    isolation = "shared kernel: namespaces, seccomp, no network interface but loopback"
    features = Features(network="gateway", limits=("memory", "cpus", "pids", "disk", "nofile"))

    def prepare(self, launch: Launch, blueprint: Blueprint) -> None:
        add_root(
            launch.plan,
            launch.root,
            blueprint.limits,
            launch.groups,
            building=blueprint.building,
        )
        add_workspace(launch.plan, launch.project, launch.account)
        add_volumes(launch.plan, blueprint, launch.account, self._state_dir)
