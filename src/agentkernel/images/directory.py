"""`--image DIR`: a root filesystem that somebody unpacked, used as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.images import etc
from agentkernel.images.cache import Progress, StrPath, key_of, layer
from agentkernel.images.host import DEFAULT_PATH, guest_environment
from agentkernel.images.model import IdView, RootFilesystem, Stack
from agentkernel.images.skeleton import skeleton

VERSION = 1
# Below the image, for what it lacks: places to mount on, and files that programs die without.
DIRECTORIES = (
    ("dev", 0o755),
    ("proc", 0o755),
    ("sys", 0o755),
    ("run", 0o755),
    ("tmp", 0o1777),
    ("var/tmp", 0o1777),
    ("root", 0o700),
    ("home/user", 0o755),
)
FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/hostname", "etc/resolv.conf")
PROGRAM_PLACES = ("bin", "usr/bin", "sbin", "busybox")


def resolve_directory(
    path: str,
    cache_dir: StrPath,
    ids: IdView,
    *,
    progress: Progress | None = None,
    protected: Sequence[StrPath] = (),
) -> RootFilesystem:
    """The directory as an image. `protected` are directories (state, runtime) it may not hold."""
    real = _validated(path, cache_dir, protected)
    lowers = [real, floor(cache_dir, ids)]
    notes = [f"The image is {real}; what changes there while a sandbox runs may be seen inside."]
    if ids.kind != "range" and _has_foreign_directories(real, ids.host_uid):
        lowers.insert(0, skeleton(real, cache_dir, progress))
        notes.append(
            "Files of other accounts appear as nobody's: they can be replaced, not edited in place."
        )
    return RootFilesystem(
        reference=real,
        stacks=(Stack("/", tuple(lowers)),),
        environment=guest_environment(ids, list(DEFAULT_PATH)),
        notes=tuple(notes),
        kind="directory",
    )


def _validated(path: str, cache_dir: StrPath, protected: Sequence[StrPath]) -> str:
    try:
        real = os.path.realpath(os.path.expanduser(path))
    except ValueError:  # a NUL, or no bytes at all
        raise InvalidInputError(f"{path!r} cannot be the name of a directory") from None
    if not os.path.lexists(real):
        raise NotFoundError(f"no such image directory: {path}")
    if not os.path.isdir(real):
        raise InvalidInputError(
            f"{path} is not a directory",
            hint="unpack the root filesystem into a directory, and name that",
        )
    if real == "/":
        raise InvalidInputError(
            "the machine's own root cannot be an image: it would show all of its files",
            hint="use --image host, which shows the programs and a clean rest",
        )
    kept_out = [os.fspath(item) for item in (cache_dir, *protected, os.path.expanduser("~"))]
    for other in kept_out:
        if (os.path.realpath(other) + "/").startswith(real + "/"):
            raise InvalidInputError(
                f"{path} cannot be an image: it contains {other}",
                hint="choose a directory that holds a root filesystem and nothing else",
            )
    if not os.access(real, os.R_OK | os.X_OK):
        raise InvalidInputError(
            f"{path} cannot be read by you", hint=f"try: ls {real}; then fix its owner or mode"
        )
    if not any(os.path.lexists(f"{real}/{place}") for place in PROGRAM_PLACES):
        raise InvalidInputError(
            f"{path} does not look like a root filesystem: it has no bin, usr/bin or busybox",
            hint="name the directory that holds bin, etc, usr and so on",
        )
    return real


def _has_foreign_directories(real: str, uid: int) -> bool:
    for name in ("", "etc", "usr", "usr/bin", "var"):
        try:
            if os.stat(f"{real}/{name}", follow_symlinks=False).st_uid != uid:
                return True
        except OSError:
            continue
    return False


def floor(cache_dir: StrPath, ids: IdView) -> str:
    """The layer below an image, with what the image may lack."""
    files = {path: text for path, text in etc.fresh_files("/bin/sh").items() if path in FILES}

    def build(target: str) -> None:
        for path, mode in DIRECTORIES:
            etc.make_directories(target, path, mode)
        for path, text in files.items():
            etc.write(target, path, text)
        if ids.kind == "range":
            os.chown(f"{target}/home/user", 1000, 1000)

    key = key_of("floor", VERSION, ids.kind, DIRECTORIES, files)
    return layer(cache_dir, f"floor-{key}", build)
