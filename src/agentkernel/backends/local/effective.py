"""What really holds in a sandbox of the native engine, line by line, with what enforces it; other
engines of this machine correct the lines in which they differ.

Nothing here is a wish: each line is derived from what was done. A default that could not be
enforced says so ("not enforced") and why.
"""

from __future__ import annotations

from agentkernel.backends.base import Blueprint, EffectiveLine
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.idmaps import IdMaps
from agentkernel.images.model import RootFilesystem

NOT_ENFORCED = "not enforced"


def effective_lines(
    blueprint: Blueprint, root: RootFilesystem, maps: IdMaps, groups: SandboxGroups
) -> list[EffectiveLine]:
    limits = blueprint.limits
    line = EffectiveLine
    lines = [
        line(
            "isolation",
            "shared kernel",
            "user, mount, pid, ipc, uts, cgroup and network namespaces",
        ),
        line("ids", maps.words, "user namespace"),
        line("user", blueprint.user, "agentd"),
        line("profile", blueprint.profile, "expanded into the lines below"),
        line("capabilities of root", _capabilities(blueprint), "bounding set, no_new_privs"),
        line("system calls", f"profile {blueprint.seccomp}", "seccomp filter"),
        line("network", "none: loopback only", "network namespace of an outer user namespace"),
        line("nested user namespaces", *_nested(blueprint)),
        line(
            "memory", _size(limits.memory_bytes), _by_group("memory", limits.memory_bytes, groups)
        ),
        line("cpus", _plain(limits.cpus), _by_group("cpus", limits.cpus, groups)),
        line(
            "pids",
            str(limits.pids),
            "pids control group"
            if "pids" in groups.enforced
            else "RLIMIT_NPROC in the user namespace",
        ),
        line("disk", *_disk(blueprint)),
        line("/tmp", _size(limits.tmp_bytes), "size of the tmpfs"),
        line("/dev/shm", _size(limits.shm_bytes), "size of the tmpfs"),
        line(
            "open files",
            _plain(limits.nofile),
            "RLIMIT_NOFILE" if limits.nofile else "the machine's",
        ),
        line(
            "image", root.reference, "overlay: layers read-only, changes in the sandbox's own upper"
        ),
    ]
    if maps.mode == "single":
        lines.append(
            line("supplementary groups", "kept from the user", f"{NOT_ENFORCED}: needs subuids")
        )
    lines += [line("host path", tree.path, f"read-only: {tree.reason}") for tree in root.trees]
    lines += [line("note", note, "") for note in root.notes]
    return lines


def unenforced(lines: tuple[EffectiveLine, ...]) -> list[str]:
    """Sentences for stderr: what the profile wants and this machine can't give."""
    return [
        f"{line.what} {line.value} is {line.enforced_by}"
        for line in lines
        if line.enforced_by.startswith(NOT_ENFORCED) and line.what in ("memory", "cpus", "disk")
    ]


def _capabilities(blueprint: Blueprint) -> str:
    return " ".join(sorted(c.removeprefix("CAP_") for c in blueprint.capabilities)) or "none"


def _nested(blueprint: Blueprint) -> tuple[str, str]:
    if blueprint.nested_userns:
        return "allowed", "asked for by the spec"
    return "denied", "max_user_namespaces=0 and seccomp"


def _disk(blueprint: Blueprint) -> tuple[str, str]:
    size = blueprint.limits.disk_bytes
    if size is None:
        return "unbounded", "files are in the state directory"
    return _size(size), "size of the tmpfs (files are in memory and count as memory)"


def _by_group(name: str, value: object, groups: SandboxGroups) -> str:
    if value is None:
        return "no limit set"
    if name in groups.enforced:
        return "control group"
    return f"{NOT_ENFORCED}: {groups.reason or 'no such controller'}"


def _plain(value: float | int | None) -> str:
    return "unbounded" if value is None else f"{value:g}"


def _size(value: int | None) -> str:
    if value is None:
        return "unbounded"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} bytes"
