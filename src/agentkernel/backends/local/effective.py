"""What really holds in a sandbox of the native engine, line by line, with what enforces it; other
engines of this machine correct the lines in which they differ.

Nothing here is a wish: each line is derived from what was done. A default that could not be
enforced says so ("not enforced") and why.
"""

from __future__ import annotations

import resource

from agentkernel.backends.base import (
    NOT_AVAILABLE,
    NOT_ENFORCED,
    THROUGH_GATEWAY,
    Blueprint,
    EffectiveLine,
)
from agentkernel.backends.local.boot import emulates_ownership
from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.idmaps import IdMaps
from agentkernel.backends.local.uppers import Upper
from agentkernel.images.model import RootFilesystem


def effective_lines(
    blueprint: Blueprint, root: RootFilesystem, maps: IdMaps, groups: SandboxGroups, upper: Upper
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
        network_line(blueprint.network is not None, blueprint.without_network),
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
        line("disk", *_disk(upper)),
        line("/tmp", _size(limits.tmp_bytes), "size of the tmpfs"),
        line("/dev/shm", _size(limits.shm_bytes), "size of the tmpfs"),
        line("open files", *_open_files(limits.nofile)),
        line(
            "image", root.reference, "overlay: layers read-only, changes in the sandbox's own upper"
        ),
    ]
    if emulates_ownership(root, maps):
        lines.append(
            line(
                "ownership",
                "emulated: changing owners and users says it worked and does nothing",
                "seccomp filter",
            )
        )
    if maps.mode == "single":
        lines.append(
            line("supplementary groups", "kept from the user", f"{NOT_ENFORCED}: needs subuids")
        )
    lines += [line("host path", tree.target, f"read-only: {tree.reason}") for tree in root.trees]
    lines += [line("note", note, "") for note in root.notes]
    return lines


def network_line(has_way_out: bool, why_not: str = "") -> EffectiveLine:
    owner = "network namespace of an outer user namespace"
    if not has_way_out:
        by = f"{NOT_AVAILABLE}: {why_not}" if why_not else owner
        return EffectiveLine("network", "none: loopback only", by)
    return EffectiveLine("network", THROUGH_GATEWAY, f"nftables in the {owner}")


def _capabilities(blueprint: Blueprint) -> str:
    return " ".join(sorted(c.removeprefix("CAP_") for c in blueprint.capabilities)) or "none"


def _nested(blueprint: Blueprint) -> tuple[str, str]:
    if blueprint.nested_userns:
        return "allowed", "asked for by the spec"
    return "denied", "max_user_namespaces=0 and seccomp"


def _disk(upper: Upper) -> tuple[str, str]:
    size = _size(upper.size)
    match upper.kind:
        case "memory":
            return size, "size of the tmpfs (files are in memory and count as memory)"
        case "image":
            return size, "size of the ext4 image file that holds the files"
        case _:
            if upper.reason:
                return size, f"{NOT_ENFORCED}: {upper.reason}"
            return size, "files are in the state directory"


def _open_files(wanted: int | None) -> tuple[str, str]:
    """agentd can't give more than it has itself."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if wanted is None:
        return "unbounded", "the machine's"
    if most not in (-1, resource.RLIM_INFINITY) and most < wanted:
        return _plain(most), f"RLIMIT_NOFILE; {wanted} would be more than this user may have"
    return _plain(wanted), "RLIMIT_NOFILE"


def _by_group(name: str, value: object, groups: SandboxGroups) -> str:
    if value is None:
        return "no limit set"
    reason, _ = groups.why_not(name)
    return f"{NOT_ENFORCED}: {reason}" if reason else "control group"


def _plain(value: float | int | None) -> str:
    return "unbounded" if value is None else f"{value:g}"


def _size(value: int | None) -> str:
    if value is None:
        return "unbounded"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} bytes"
