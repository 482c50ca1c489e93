"""Where fuzzed programs run: a root and namespaces of their own, as a user that nobody is.

The root is an empty tmpfs with the machine's /usr in it, read-only (the sanitizers' libraries), and
one directory to work in. A second root below it, /arena, is for what works on files. The programs
refuse to run anywhere else (world.c).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .targets import DICTIONARY, FuzzFailure, Target, build

# Nobody's: what root starts here has no right to anything of the machine.
NOBODY = 1_420_000_000

_ENTER = """
set -e
root=$1 work=$2
shift 2
mount -t tmpfs -o size=512m,mode=755 arena "$root"
cd "$root"
mkdir usr proc tmp work dev old arena
: > .fuzz-arena
mount --rbind /usr usr
mount -o remount,bind,ro usr
for name in bin sbin lib lib64; do [ ! -e "/usr/$name" ] || ln -s "usr/$name" "$name"; done
for name in null urandom; do : > "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mount --bind "$work" work
mount -t tmpfs -o size=64m,mode=755 arena arena
mkdir -p arena/proc arena/work/crashes
mount --bind "$work/crashes" arena/work/crashes
mount -t proc proc proc
mount -t proc -o ro,subset=pid proc arena/proc
pivot_root . old
umount -l old
cd /
/work/target "$@"
"""


@dataclass
class Arena:
    """A directory of one target: `corpus` (kept inputs), `new`, `crashes`, the program."""

    target: Target
    work: Path
    root: Path

    def command(self, arguments: list[str]) -> list[str]:
        enter = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc"]
        enter += ["--uts", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"]
        enter += [str(self.root), str(self.work), *arguments]
        if os.getuid() == 0:
            ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            enter = ["setpriv", *ids, *enter]
        return enter

    def run(self, arguments: list[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Run the program until it ends by itself; beyond `seconds` it is killed."""
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            # Memory is counted by the targets themselves, at the end of every input.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_abort=1:symbolize=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        process = subprocess.Popen(
            self.command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            said, _ = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            process.communicate(timeout=30)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, said)


@contextlib.contextmanager
def arena(target: Target) -> Iterator[Arena]:
    """A fresh place for a target, with copies of its kept inputs."""
    for tool in ("unshare", "setpriv", "mount", "pivot_root"):
        if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            raise FuzzFailure(f"{tool} is not installed (Debian: util-linux, mount)")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        top = Path(name)
        top.chmod(0o755)
        work, root = top / "work", top / "root"
        for directory in (work, root, work / "corpus", work / "new", work / "crashes"):
            directory.mkdir()
        shutil.copy(build(target), work / "target")
        shutil.copy(DICTIONARY, work / "dictionary")
        for path in sorted(target.corpus.glob("*")):
            shutil.copy(path, work / "corpus")
        if os.getuid() == 0:
            for path in (work, root, *work.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield Arena(target, work, root)
