"""A disk with the clone that the command is run from, and agentd built from it."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .image import CLONE, SUITES, ImageProblem

INSIDE = "/srv/agentkernel"
AGENTD = f"{INSIDE}/.build/agentd"
NOT_COPIED = (
    ".git",
    ".venv",
    ".build",
    "_agentd",
    "dist",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)
DISK_BYTES = 256 << 20


def make_disk(path: Path, suite: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tree-", dir=path.parent) as scratch:
        copy = Path(scratch) / "clone"
        shutil.copytree(CLONE, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        copy.chmod(0o755)
        _build_agentd(copy / ".build/agentd")
        # Compiling under emulation takes minutes; the bytecode of one minor version is the same.
        if SUITES[suite] == f"{sys.version_info.major}.{sys.version_info.minor}":
            for folder in ("src", "tests"):
                compileall.compile_dir(copy / folder, quiet=2, stripdir=copy, prependdir=INSIDE)
        with path.open("wb") as file:
            file.truncate(DISK_BYTES)
        command = ["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", str(copy), str(path)]
        subprocess.run(command, check=True, timeout=60, stdout=sys.stderr)


def _build_agentd(out: Path) -> None:
    script = str(CLONE / "tools/agentd_build.py")
    command = [sys.executable, script, "--out", str(out)]
    done = subprocess.run(command, check=False, timeout=900, stdout=sys.stderr)
    if done.returncode != 0:
        raise ImageProblem("agentd was not built: the lines above say why")
    os.chmod(out, 0o755)
