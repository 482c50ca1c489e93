"""config.json: what a runtime is told of the container, by the OCI runtime specification.

The root stands ready in the bundle (`r`), made by our launcher from the image's layers. What is
left to the runtime is what only the owner of the guest's namespaces can do: those namespaces,
/proc, file systems in memory, and starting agentd with its id and capabilities. Seccomp is not
here: agentd puts the compiled filter on every process it starts, the same on each engine.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import Any

import msgspec

from agentkernel.backends.base import Blueprint, VolumeMount
from agentkernel.backends.local import procfs
from agentkernel.backends.local.backend import Launch
from agentkernel.backends.local.idmaps import Lines
from agentkernel.backends.local.plan import AGENT_CAPABILITIES, TTY_GROUP, add_proc, limited_memory

# A bind of it would show the guest, in its mountinfo, where on the host agentd is; a descriptor
# does not. gVisor takes no descriptors, and its mountinfo names nothing of the host.
INHERITED_AGENT = "/proc/self/fd/5"
AGENT_PATH = "/run/agentkernel/agentd"
SOCKET_DIRECTORY = "/run/agentkernel/socket"

_MEMINFO = "meminfo"
# What a runtime puts into /dev unasked, bound from the machine's.
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# System V objects outlive their makers: the same bounds as the native engine's.
_IPC_BOUNDS = {
    "kernel.shm_rmid_forced": "1",
    "kernel.msgmni": "128",
    "kernel.sem": "250 8192 32 128",
}


def container_config(launch: Launch, blueprint: Blueprint) -> bytes:
    """For runtimes that share the machine's kernel. What is to be hidden of its /proc the keeper
    hides, as the native engine does: a runtime takes no file of ours over most of them."""
    limits = blueprint.limits
    add_proc(launch.plan.late, limits, launch.groups)
    for name in _DEVICES:
        launch.plan.late("nosuid", f"/dev/{name}")
    inodes = f"nr_inodes={limits.tmpfs_inodes}"
    terminals = ["newinstance", "ptmxmode=0666", "mode=0620", "max=1024"]
    if launch.maps.mode != "single":
        terminals.append(f"gid={TTY_GROUP}")
    config = _config(launch, blueprint, INHERITED_AGENT)
    config["mounts"] = [
        _mount("proc", "/proc", "nodev", "noexec"),
        # The runtime puts its six harmless devices there before it becomes read-only.
        _mount("tmpfs", "/dev", "noexec", "size=64k", "nr_inodes=64", "mode=755", "ro"),
        _mount("devpts", "/dev/pts", "noexec", *terminals),
        _mount("tmpfs", "/dev/shm", "nodev", "noexec", f"size={limits.shm_bytes}", inodes),
        _mount("tmpfs", "/tmp", "nodev", f"size={limits.tmp_bytes}", inodes, "mode=1777"),
        _mount("tmpfs", "/run", "nodev", f"size={limits.run_bytes}", inodes, "mode=755"),
        *_covered_trees(launch),
        *_covered_workspace(launch),
        *_covered_volumes(launch, blueprint),
    ]
    config["linux"] = {
        "namespaces": _namespaces("user", "pid", "mount", "ipc", "uts"),
        "uidMappings": _mappings(launch.maps.inner_uids),
        "gidMappings": _mappings(launch.maps.inner_gids),
        "sysctl": _IPC_BOUNDS,
    }
    return msgspec.json.encode(config)


def sentry_config(launch: Launch, blueprint: Blueprint, volumes: Sequence[int]) -> bytes:
    """For gVisor, whose kernel brings /proc, /dev and every tmpfs itself: nothing to mask there.

    `volumes`: their sources. They are mounts of the runtime's, of which the sentry knows that
    others change them, too; of its root it does not."""
    limits, plan = blueprint.limits, launch.plan
    # The keeper shows it to runsc, whose sentry then says the same of its memory.
    meminfo = procfs.meminfo(limited_memory(limits, launch.groups))
    plan.op("stage", _MEMINFO, content=meminfo.encode())
    agent = plan.staged(plan.source(plan.agent_path, file=True))
    engine = plan.staged(plan.source(plan.engine_directory, writable=True))
    config = _config(launch, blueprint, AGENT_PATH)
    config["mounts"] = [
        _mount("proc", "/proc", "nodev", "noexec"),
        # Empty and read-only, as on the other engines; what is not said here is mounted writable.
        _mount("tmpfs", "/sys", "nodev", "noexec", "size=4k", "mode=555", "ro"),
        _mount("dev", "/dev", "noexec", "ro"),
        _mount("devpts", "/dev/pts", "noexec"),
        _mount("tmpfs", "/dev/shm", "nodev", "noexec", f"size={limits.shm_bytes}", "mode=1777"),
        _mount("tmpfs", "/tmp", "nodev", f"size={limits.tmp_bytes}", "mode=1777"),
        _mount("tmpfs", "/run", "nodev", f"size={limits.run_bytes}", "mode=755"),
        _bind(AGENT_PATH, agent),
        _mount("bind", SOCKET_DIRECTORY, "bind", "nodev", source=f"{engine}/socket"),
        *_covered_trees(launch),
        *_covered_workspace(launch),
        *(
            _volume_mount(volume, "bind", plan.staged(number))
            for volume, number in zip(blueprint.volumes, volumes, strict=True)
        ),
    ]
    if blueprint.network:
        # The sentry then has no right over the network namespace that it is in, which is ours.
        config["linux"] = {
            "namespaces": _namespaces("user", "pid", "mount", "ipc", "uts"),
            "uidMappings": _mappings(launch.maps.inner_uids),
            "gidMappings": _mappings(launch.maps.inner_gids),
        }
    else:
        config["linux"] = {"namespaces": _namespaces("pid", "mount", "ipc", "uts", "network")}
    return msgspec.json.encode(config)


def _config(launch: Launch, blueprint: Blueprint, program: str) -> dict[str, Any]:
    agent = launch.maps.agent_id
    capabilities = sorted(AGENT_CAPABILITIES | blueprint.capabilities)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "ociVersion": "1.0.2",
        "hostname": blueprint.hostname,
        "root": {"path": "r"},
        "process": {
            "user": {"uid": agent, "gid": agent},
            "args": [program],
            "env": [],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {
                kind: capabilities
                for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")
            },
            # agentd's own, as the machine has it. What processes get, the boot configuration says.
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": soft, "hard": hard}],
        },
    }


def _covered_trees(launch: Launch) -> list[dict[str, Any]]:
    """Trees of the host that the root has where the runtime puts a tmpfs over it."""
    root = f"{launch.plan.bundle}/r"
    return [
        _mount("bind", tree.target, "rbind", "ro", "nodev", source=f"{root}{tree.target}")
        for tree in launch.root.trees
        if tree.target.startswith(("/tmp/", "/run/"))
    ]


def _covered_workspace(launch: Launch) -> list[dict[str, Any]]:
    project = launch.project
    if project is None or not project.workspace.target.startswith("/tmp/"):
        return []
    target = project.workspace.target
    options = ("rbind", "nodev", "ro") if project.workspace.mode == "ro" else ("rbind", "nodev")
    return [_mount("bind", target, *options, source=f"{launch.plan.bundle}/r{target}")]


def _covered_volumes(launch: Launch, blueprint: Blueprint) -> list[dict[str, Any]]:
    root = f"{launch.plan.bundle}/r"
    return [
        _volume_mount(volume, "rbind", root + volume.path)
        for volume in blueprint.volumes
        if f"{volume.path}/".startswith(("/tmp/", "/run/"))
    ]


def _volume_mount(volume: VolumeMount, how: str, source: str) -> dict[str, Any]:
    options = (how, "nodev", "ro") if volume.read_only else (how, "nodev")
    return _mount("bind", volume.path, *options, source=source)


def _namespaces(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind} for kind in kinds]


def _mappings(lines: Lines) -> list[dict[str, int]]:
    return [
        {"containerID": inside, "hostID": outside, "size": count}
        for inside, outside, count in lines
    ]


def _bind(destination: str, source: str) -> dict[str, Any]:
    return _mount("bind", destination, "bind", "ro", "nodev", source=source)


def _mount(kind: str, destination: str, *options: str, source: str = "") -> dict[str, Any]:
    return {
        "destination": destination,
        "type": kind,
        "source": source or kind,
        "options": ["nosuid", *options],
    }
