"""From a launcher's failed stage to the exact cause and the one thing that mends it.

Every branch looks at the machine (a sysctl, a file system's type, our own seccomp state) before it
names a cause; what is not recognised is reported as it is, with stage and errno, never as a guess.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agentkernel.backends.local.launcher import LaunchFailure
from agentkernel.backends.local.network import explain_network
from agentkernel.backends.local.shortages import host_error
from agentkernel.errors import (
    AgentKernelError,
    HostError,
    LaunchError,
    UnenforceableError,
)

# Unprivileged overlay mounts; mount_setattr; close_range with CLOEXEC. Checked by doing, said here.
KERNEL_FLOOR_USER = (5, 12)
# Idmapped layers below an overlay, which is how root's sandboxes get ids of their own.
KERNEL_FLOOR_ROOT = (5, 19)
# `user.*` attributes on tmpfs: whiteouts and opaque directories of an overlay's upper.
KERNEL_FLOOR_MEMORY_UPPER = (6, 6)

_FORBIDS = (errno.EPERM, errno.EACCES)
_USERNS_STAGES = {
    "unshare-user", "map-single", "map-range", "map-inner", "clone-guest", "propagation", "staging",
    "loopback", "unshare-net", "source", "source-attributes", "hostname", "nested-user",
}  # fmt: skip
NO_UPPER = {"overlay", "NFS", "FUSE", "9p"}


def kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def explain(failure: LaunchFailure, *, as_root: bool, upper: str | None) -> AgentKernelError:
    floor = KERNEL_FLOOR_ROOT if as_root else KERNEL_FLOOR_USER
    if kernel_version() < floor:
        wanted = ".".join(map(str, floor))
        return HostError(
            f"Linux {os.uname().release} is too old: sandboxes "
            f"{'of root ' if as_root else ''}need {wanted}",
            hint="use a newer kernel" + ("" if not as_root else ", or run as a normal user"),
        )
    number, stage = failure.errno, failure.stage
    if error := explain_network(failure):
        return error
    if number in (errno.ENOSPC, errno.EUSERS) and stage in ("unshare-user", "clone-guest"):
        return _no_namespaces_left(stage)
    if number in _FORBIDS and stage in _USERNS_STAGES | {"unshare-mount", "enter-user"}:
        return _namespaces_forbidden(stage, as_root)
    if stage == "map-subuid":
        return HostError(
            f"{failure.detail} could not map this user's subordinate ids",
            hint="check that newuidmap is setuid root (or has its file capability) and that "
            "/etc/subuid and /etc/subgid list 65536 ids for this user",
        )
    if stage == "proc" and number in _FORBIDS:
        return HostError(
            "a new /proc can't be mounted: parts of /proc are covered here, as in a container",
            hint="start the container with --security-opt systempaths=unconfined",
        )
    if stage in ("overlay", "upper") and number in (errno.EINVAL, *_FORBIDS, errno.EOPNOTSUPP):
        return _no_overlay(failure, upper)
    if stage in ("loop", "image-mount"):
        return UnenforceableError(
            f"--disk, or a volume's quota, can't be enforced: an image file can't be mounted: "
            f"{failure.detail}: {os.strerror(number)}",
            hint="load the modules loop and ext4, or leave the limit out",
            limit="disk",
        )
    if stage == "image-lock":
        return LaunchError("the sandbox's disk is still in use", hint="try again")
    if stage == "idmap":
        return HostError(
            f"the file system of {failure.detail} ({filesystem_of(failure.detail)}) can't be "
            f"idmapped: {os.strerror(number)}",
            hint="as root, images and state must be on ext4, xfs, btrfs or tmpfs; "
            "or run agentkernel as a normal user",
        )
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
        return host_error(OSError(number, os.strerror(number)), f"making the sandbox ({stage})")
    if stage == "volume":
        return HostError(
            f"a volume's directory can't be made or read: {failure.detail}: {os.strerror(number)}",
            hint="look whether it is still there; if not, remove the volume and make it again",
        )
    if stage == "target" and number in (errno.ELOOP, errno.ENOTDIR):
        return LaunchError(
            f"the image has a link or a file where the sandbox needs a directory: {failure.detail}",
            hint="an image must have real directories at /proc, /dev, /tmp, /run, /sys and /etc, "
            "and a volume or a workspace its place where no link leads, as /workspace is",
        )
    why = os.strerror(number) if number else "it broke off"
    words = f"{stage}: {why}" + (f" ({failure.detail})" if failure.detail else "")
    return LaunchError(f"the sandbox could not be made: {words}", stage=stage, errno=number)


def _namespaces_forbidden(stage: str, as_root: bool) -> HostError:
    """One cause, the first that this machine really shows."""
    if _sysctl("kernel/unprivileged_userns_clone") == "0" and not as_root:
        return HostError(
            "user namespaces are switched off for normal users "
            "(kernel.unprivileged_userns_clone=0)",
            hint="sudo sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" and not as_root:
        return HostError(
            "AppArmor takes the rights away that a user namespace needs "
            "(kernel.apparmor_restrict_unprivileged_userns=1, as on Ubuntu 24.04)",
            hint="sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if _status_field("Seccomp") == "2":
        return HostError(
            "a seccomp filter around this process forbids namespaces, as in a container",
            hint="start the container with --security-opt seccomp=unconfined",
        )
    if _in_chroot() or (stage == "unshare-user" and not as_root and not _security_module()):
        return HostError(
            "this process is in a chroot, where the kernel makes no user namespaces",
            hint="enter the tree by pivot_root instead (for example with unshare or a container)",
        )
    if as_root:
        return HostError(
            f"root lacks the capabilities to make namespaces here ({stage})",
            hint="start the container with --privileged, or run agentkernel as a normal user",
        )
    return HostError(
        f"the system forbids what a user namespace needs ({stage}: permission denied)",
        hint="check the LSM's log (dmesg, audit) for a denial of agentd",
    )


def _no_namespaces_left(stage: str) -> HostError:
    if _sysctl("user/max_user_namespaces") == "0":
        return HostError(
            "user namespaces are switched off (user.max_user_namespaces=0)",
            hint="sudo sysctl -w user.max_user_namespaces=65536",
        )
    return HostError(
        f"the limit of namespaces is reached ({stage})",
        hint="remove sandboxes, or raise user.max_user_namespaces and its neighbours by sysctl",
    )


def _no_overlay(failure: LaunchFailure, upper: str | None) -> AgentKernelError:
    kind = filesystem_of(upper) if upper else ""
    if kind in NO_UPPER:
        return HostError(
            f"the state directory is on {kind}, which can't hold a sandbox's files: {upper}",
            hint="set AGENTKERNEL_STATE_DIR to a directory on ext4, xfs, btrfs or tmpfs, "
            "or keep the files in memory with --disk 2G",
        )
    return LaunchError(
        f"the root file system can't be mounted: {os.strerror(failure.errno)} ({failure.detail})",
        stage=failure.stage,
        errno=failure.errno,
    )


def filesystem_of(path: str) -> str:
    """The type of the file system that holds `path`, from the longest matching mount point."""
    best, kind = "", "unknown"
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                left, _, right = line.partition(" - ")
                point = left.split()[4].encode().decode("unicode_escape")
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, right.split()[0]
    except OSError:
        return kind
    return {"nfs": "NFS", "nfs4": "NFS"}.get(kind, "FUSE" if kind.startswith("fuse") else kind)


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _status_field(name: str) -> str:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return line.split()[1]
    except OSError:
        pass
    return ""


def _in_chroot() -> bool:
    """The root of our mount namespace is not our root: mountinfo then shows no mount at "/", unless
    somebody mounted the tree there first."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return not any(line.split()[4] == "/" for line in lines)


def _security_module() -> bool:
    """An LSM that labels processes, such as AppArmor or SELinux, is at work. Without one, and with
    the sysctls and filters ruled out, a chroot is the kernel's only reason left to refuse."""
    try:
        return bool(Path("/proc/self/attr/current").read_bytes())
    except OSError:
        return False
