"""Directory skeletons: how a normal user's guest can write into directories that root owns.

To a normal user's sandbox, a file of the machine's root belongs to nobody, and so do the
directories: nothing could be created, removed or replaced in `/usr`. A layer that has the same
directories, owned by the user and without files, put above the machine's, changes whose they are.
Editing a file of the machine in place still fails; replacing it works.
"""

from __future__ import annotations

import os

from agentkernel.errors import UnsupportedError
from agentkernel.images.cache import Progress, StrPath, key_of, layer

VERSION = 1
MAX_DIRECTORIES = 200_000
# Directories whose own children are looked at for the key: where people install things by hand.
LOOK_INTO = ("local", "usr", "opt")
MAX_KEY_ENTRIES = 512
PACKAGE_DATABASES = (
    "var/lib/dpkg/status",
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "var/lib/pacman/local",
    "lib/apk/db/installed",
    "usr/lib/apk/db/installed",
)


def skeleton(
    source: StrPath,
    cache_dir: StrPath,
    progress: Progress | None = None,
    *,
    machine: str = "",
    shown_as: str | None = None,
) -> str:
    """The path of a layer with the directories of `source`; made at first use.

    `machine` is the root whose package database tells that `source` changed; `shown_as` is how
    messages call it. A directory that appears in `source` later without any sign in the key is
    merely not writable inside.
    """
    path = os.path.abspath(os.fspath(source))
    shown = shown_as or path
    return layer(
        cache_dir,
        f"skeleton-{key_of('skeleton', VERSION, tree_key(path, machine))}",
        lambda target: _build(path, target, shown),
        progress=progress,
        message=f"preparing a writable view of {shown} (once, until its packages change)",
        flush=False,
    )


def tree_key(source: str, machine: str = "") -> list[tuple[object, ...]]:
    """What changes when directories of `source` come and go: cheap, bounded, not exhaustive."""
    info = os.stat(source)
    key: list[tuple[object, ...]] = [("", info.st_dev, info.st_ino, _count(info))]
    for name in PACKAGE_DATABASES:
        try:
            info = os.stat(f"{machine}/{name}")
        except OSError:
            continue
        key.append((name, info.st_mtime_ns, info.st_size))
    pending = [(source, "")]
    for path, prefix in pending:
        for name, info in _directories(path):
            key.append((prefix + name, info.st_ino, info.st_mode, _count(info)))
            if not prefix and name in LOOK_INTO:
                pending.append((f"{path}/{name}", f"{name}/"))
            if len(key) >= MAX_KEY_ENTRIES:
                return key
    return key


def _count(info: os.stat_result) -> tuple[str, int]:
    """A number that changes with a directory's subdirectories.

    Most filesystems count them in the links, which a new *file* does not change; btrfs does not.
    """
    return ("links", info.st_nlink) if info.st_nlink > 1 else ("time", info.st_mtime_ns)


def _directories(path: str) -> list[tuple[str, os.stat_result]]:
    try:
        with os.scandir(path) as entries:
            found = [
                (entry.name, entry.stat(follow_symlinks=False))
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(found, key=lambda item: item[0])


def _build(source: str, target: str, shown: str) -> None:
    info = os.stat(source)
    device = info.st_dev
    os.chmod(target, _mode(info))
    count = 1
    pending = [(source, target)]
    while pending:
        here, there = pending.pop()
        try:
            entries = os.scandir(here)
        except OSError:
            continue
        with entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not os.access(entry.path, os.R_OK | os.X_OK):
                    continue  # as it is: unreadable here, unreadable inside
                count += 1
                if count > MAX_DIRECTORIES:
                    raise UnsupportedError(
                        f"{shown} has more than {MAX_DIRECTORIES} directories",
                        hint="use another image, or run agentkernel as root, which needs no"
                        " writable view of them",
                    )
                mirrored = f"{there}/{entry.name}"
                os.mkdir(mirrored)
                os.chmod(mirrored, _mode(info))
                if info.st_dev == device:  # another filesystem is not part of this layer
                    pending.append((entry.path, mirrored))


def _mode(info: os.stat_result) -> int:
    return (info.st_mode & 0o1777) | 0o700
