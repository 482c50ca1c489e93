"""Where the guest's own files are, and what bounds them.

    memory      a tmpfs of the limit's size; counts as memory, gone with the sandbox
    image       a file that holds an ext4 file system of the limit's size; root only
    directory   the state directory's own disk, without a bound

It is decided when a sandbox is made; later starts find what is there.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentkernel.backends.base import Blueprint
from agentkernel.backends.local.diagnose import KERNEL_FLOOR_MEMORY_UPPER, kernel_version
from agentkernel.backends.local.directory import SandboxDirectory
from agentkernel.backends.local.idmaps import is_host_root
from agentkernel.errors import AgentKernelError, HostError, ResourceExhaustedError

LOOP_CONTROL = "/dev/loop-control"
_MKFS_SECONDS = 60.0
# Blocks of the loop device's size; nothing reserved for root; an inode for each 8 KiB, as sources
# and packages are many small files; nothing written that need not be.
_MKFS_WORDS = (
    *("-t", "ext4", "-q", "-F", "-b", "4096", "-m", "0", "-i", "8192"),
    *("-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"),
)
_UNMOUNT_SECONDS = 30.0


@dataclass(frozen=True)
class Upper:
    """`reason`: why a limit that is wanted does not hold, and `remedy` what would mend it."""

    kind: Literal["memory", "image", "directory"]
    size: int | None = None
    reason: str = ""
    remedy: str = ""

    @property
    def is_bounded(self) -> bool:
        return self.kind != "directory"


def choose_upper(blueprint: Blueprint, directory: SandboxDirectory) -> Upper:
    size = blueprint.limits.disk_bytes
    if directory.image.exists():
        return Upper("image", size)
    if size is None:
        return Upper("directory")
    if blueprint.ephemeral:
        if kernel_version() >= KERNEL_FLOOR_MEMORY_UPPER:
            return Upper("memory", size)
        wanted = ".".join(map(str, KERNEL_FLOOR_MEMORY_UPPER))
        return Upper(
            "directory", size, f"files in memory need Linux {wanted}", "use a newer kernel"
        )
    if directory.upper.exists():
        return Upper("directory", size, "this sandbox was made without a bound", "make another")
    reason, remedy = no_image()
    return Upper("directory" if reason else "image", size, reason, remedy)


async def make_image(image: Path, size: int) -> Path:
    """The image, made unless it is there. It is sparse: it takes what the guest writes."""
    if os.path.exists(image):  # noqa: ASYNC240 (one stat)
        return image
    new = image.with_name(f".{image.name}")
    _make_sparse(new, size)
    maker = await asyncio.create_subprocess_exec(
        _mkfs() or "mkfs.ext4",
        *_MKFS_WORDS,
        str(new),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
    )
    try:
        async with asyncio.timeout(_MKFS_SECONDS):
            _, words_of_it = await maker.communicate()
    except BaseException as exc:
        maker.kill()
        await maker.wait()
        if isinstance(exc, TimeoutError):
            raise HostError(f"mkfs.ext4 did not end in {_MKFS_SECONDS:g} s") from None
        raise
    if maker.returncode:
        text = words_of_it.decode(errors="replace").strip()
        if "No space left" in text:
            raise ResourceExhaustedError("no space left for a disk of its own")
        raise HostError(f"mkfs.ext4 failed: {text[-300:]}")
    new.rename(image)
    return image


def _make_sparse(path: Path, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


async def wait_unmounted(directory: SandboxDirectory) -> None:
    """Returns when the kernel has let go of the image. Its loop device holds a lock on it."""
    try:
        fd = os.open(directory.image, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        async with asyncio.timeout(_UNMOUNT_SECONDS):
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    await asyncio.sleep(0.002)
    except TimeoutError:
        raise AgentKernelError("the sandbox's disk is still mounted") from None
    finally:
        os.close(fd)


def no_image() -> tuple[str, str]:
    """Why there can be no image here, and what would mend it; nothing if there can."""
    if not is_host_root():
        return "a disk of its own needs a loop device, which only root may use", "run as root"
    if _mkfs() is None:
        return "mkfs.ext4 is not installed", "install the package e2fsprogs"
    try:
        os.close(os.open(LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        return (
            f"{LOOP_CONTROL}: {exc.strerror}",
            "load the loop module, or give the container its loop devices",
        )
    return "", ""


def _mkfs() -> str | None:
    return shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
