"""A layer above a project that hides some of its files: whiteouts, in directories as they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path


def make_hidden(target: Path, project: str, paths: Iterable[str]) -> None:
    """Fills `target`, which is made anew, so that `paths` are not there below it."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(target)
    target.mkdir(mode=0o700)
    as_in = {"": os.stat(project)}
    for path in paths:
        # Gone by now: then there is nothing to hide.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _make_parents(target, project, path, as_in)
            os.mknod(target / path, stat.S_IFCHR, 0)
    # The topmost layer says whose a directory is, and what may be done in it. Last, and from below:
    # each name that is made in a directory changes its time.
    for parent in sorted(as_in, reverse=True):
        _make_alike(target / parent, as_in[parent])


def _make_parents(target: Path, project: str, path: str, as_in: dict[str, os.stat_result]) -> None:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if parent not in as_in:
            info = os.stat(f"{project}/{parent}", follow_symlinks=False)
            (target / parent).mkdir(mode=0o700)
            as_in[parent] = info


def _make_alike(path: Path, info: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(path, info.st_uid, info.st_gid)
    os.chmod(path, stat.S_IMODE(info.st_mode) & 0o1777)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
