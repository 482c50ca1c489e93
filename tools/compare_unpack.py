#!/usr/bin/env python3
"""Unpacks layers with everything odd in them, and compares with umoci and docker, file by file.

    tools/compare_unpack.py [--files 200000] [--report docs/results/unpack.md]

Ours are unpacked one by one and mounted as an overlay; `umoci unpack` makes one directory of all;
docker loads them and exports a container. Compared are type, mode, owner, time, size, content, link
target, other names of the same file, and user attributes. As root; umoci and docker.io where they
are installed. Exit status: 0 the same but for what is known, 1 not, 2 nothing could be compared.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT / "tools")]

from docker_daemon import docker_daemon  # noqa: E402
from machine import facts  # noqa: E402
from odd_layers import layers, write_docker_archive, write_layout  # noqa: E402

from agentkernel.backends.local.layer_worker import LocalLayerWorker  # noqa: E402

TAG = "odd:latest"
# What docker puts into every container it exports, which changes the time of `etc`.
OF_DOCKER = {".dockerenv", "dev", "proc", "sys", "etc/hostname", "etc/hosts", "etc/mtab",
             "etc/resolv.conf"}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """`names`: all names of the same file, sorted; only where there are several."""

    kind: str
    mode: int
    owner: tuple[int, int]
    mtime: int
    size: int = 0
    digest: str = ""
    target: str = ""
    names: tuple[str, ...] = ()
    xattrs: tuple[tuple[str, bytes], ...] = ()


Tree = dict[str, Entry]


def main() -> int:
    options = _options()
    if os.getuid():
        print("compare_unpack: needs root, for owners and mounts", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is removed
    with tempfile.TemporaryDirectory(prefix="ak-compare-") as place:
        os.chmod(place, 0o700)
        report, same = compare(Path(place), options.files)
    print(report)
    if options.report:
        options.report.write_text(report)
    return 0 if same else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--report", type=Path)
    return parser.parse_args()


def compare(place: Path, files: int) -> tuple[str, bool]:
    paths = layers(place, files)
    # What each takes, and what it does with it.
    others: dict[str, tuple[list[Path], Callable[[Path, list[Path]], Tree]]] = {
        "umoci": (paths, unpack_by_umoci),
        "docker": (paths[:-1], unpack_by_docker),
    }
    worker = LocalLayerWorker()
    made: dict[Path, Path] = {}
    started = time.perf_counter()
    for path in paths:
        made[path] = unpack_ours(worker, path, place / f"ours-{path.stem}")
    lines = [_heading(files, paths, time.perf_counter() - started)]
    same = True
    for name, (taken, unpack) in others.items():
        ours = merged([made[path] for path in taken], place)
        try:
            theirs = unpack(place / name, taken)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            lines.append(f"## {name}\n\nNot compared: {str(error)[:300]}\n")
            continue
        differences = list(_differences(ours, theirs, docker=name == "docker"))
        same = same and not differences
        lines.append(_result(name, len(taken), len(ours), differences))
    for directory in made.values():
        worker.remove(str(directory))
    return "\n".join(lines), same


# -- unpacking -------------------------------------------------------------------------------------


def unpack_ours(worker: LocalLayerWorker, path: Path, target: Path) -> Path:
    target.mkdir()
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    worker.unpack(str(path), f"sha256:{digest}", str(target))
    return target


def merged(made: list[Path], place: Path) -> Tree:
    """Layers as a sandbox sees them: an overlay, in a mount namespace that ends with a child."""
    top, seen = place / "merged", place / "tree"
    top.mkdir(exist_ok=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _mounted(":".join(str(path) for path in reversed(made)), top)
            seen.write_bytes(pickle.dumps(tree_of(top)))
            status = 0
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError("our layers can't be mounted")
    tree: Tree = pickle.loads(seen.read_bytes())
    return tree


def _mounted(lowers: str, merged: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    private, bind = 1 << 18 | 1 << 14, f"lowerdir={lowers},userxattr".encode()
    if libc.unshare(0x00020000) or libc.mount(None, b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(b"overlay", bytes(merged), b"overlay", 1, bind):
        raise OSError(ctypes.get_errno(), "mount")


def unpack_by_umoci(place: Path, paths: list[Path]) -> Tree:
    if not shutil.which("umoci"):
        raise RuntimeError("umoci is not installed (Debian: umoci)")
    place.mkdir()
    write_layout(place / "layout", paths, "odd")
    _run("umoci", "unpack", "--image", f"{place}/layout:odd", f"{place}/bundle")
    tree = tree_of(place / "bundle" / "rootfs")
    shutil.rmtree(place)
    return tree


def unpack_by_docker(place: Path, paths: list[Path]) -> Tree:
    with (
        tempfile.TemporaryDirectory(prefix="ak-docker-") as short,
        docker_daemon(Path(short) / "d") as docker,
    ):
        place.mkdir()
        write_docker_archive(place / "image.tar", paths, TAG)
        _run(*docker, "load", "-i", str(place / "image.tar"))
        container = _run(*docker, "create", "--network=none", TAG).strip()
        _run(*docker, "export", "-o", str(place / "export.tar"), container)
        _run(*docker, "rm", container)
        _run(*docker, "rmi", TAG)
    tree = tree_of_archive(place / "export.tar")
    shutil.rmtree(place)
    return tree


def _run(*words: str) -> str:
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[-300:])
    return done.stdout


# -- trees -----------------------------------------------------------------------------------------


def tree_of(top: Path) -> Tree:
    found: Tree = {}
    names: dict[int, list[str]] = {}
    for path, info in _walk(top):
        name = os.fsdecode(os.path.relpath(path, os.fsencode(top)))
        if not stat.S_ISDIR(info.st_mode) and info.st_nlink > 1:
            names.setdefault(info.st_ino, []).append(name)
    for path, info in _walk(top):
        name = os.fsdecode(os.path.relpath(path, os.fsencode(top)))
        kind = stat.filemode(info.st_mode)[0]
        shared = names.get(info.st_ino, []) if kind != "d" else []
        found[name] = Entry(
            kind,
            stat.S_IMODE(info.st_mode),
            (info.st_uid, info.st_gid),
            int(info.st_mtime),
            info.st_size if kind == "-" else 0,
            _digest(path) if kind == "-" else "",
            os.fsdecode(os.readlink(path)) if kind == "l" else "",
            tuple(sorted(shared)) if len(shared) > 1 else (),
            _xattrs(path) if kind in "-d" else (),
        )
    return found


def _walk(top: Path) -> Iterator[tuple[bytes, os.stat_result]]:
    pending = [os.fsencode(top)]
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            yield entry.path, entry.stat(follow_symlinks=False)


def _xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    names = sorted(name for name in os.listxattr(path) if name.startswith("user."))
    return tuple((name, os.getxattr(path, name)) for name in names if "overlay" not in name)


def _digest(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_of_archive(path: Path) -> Tree:
    found: Tree = {}
    shared: dict[str, list[str]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name
            if member.islnk():
                shared.setdefault(member.linkname, [member.linkname]).append(name)
                continue
            content = archive.extractfile(member) if member.isreg() else None
            kind = ("d" if member.isdir() else "l" if member.issym() else "p" if member.isfifo()
                    else "-" if member.isreg() else "?")  # fmt: skip
            prefix = "SCHILY.xattr.user."
            found[name] = Entry(
                kind,
                member.mode & 0o7777,
                (member.uid, member.gid),
                int(member.mtime),
                member.size,
                hashlib.sha256(content.read()).hexdigest() if content else "",
                member.linkname if member.issym() else "",
                (),
                tuple(
                    (key.removeprefix("SCHILY.xattr."), os.fsencode(value))
                    for key, value in sorted(member.pax_headers.items())
                    if key.startswith(prefix)
                ),
            )
    for first, names in shared.items():
        together = tuple(sorted(names))
        for name in names:
            old = found[first]
            found[name] = Entry(
                old.kind, old.mode, old.owner, old.mtime, old.size, old.digest, old.target,
                together, old.xattrs,
            )  # fmt: skip
    return found


# -- the result ------------------------------------------------------------------------------------


def _differences(ours: Tree, theirs: Tree, *, docker: bool) -> Iterator[tuple[str, str, str]]:
    """(path, what, which). A container that docker exports has more and less than its image."""
    left_out = OF_DOCKER if docker else set()
    for name in sorted(ours.keys() | theirs.keys()):
        if name in left_out or name.split("/")[0] in left_out:
            continue
        if name not in theirs or name not in ours:
            yield name, "existence", "only " + ("ours" if name in ours else "theirs")
            continue
        for field in fields(Entry):
            mine, other = getattr(ours[name], field.name), getattr(theirs[name], field.name)
            if docker and (field.name == "xattrs" or (name, field.name) == ("etc", "mtime")):
                continue
            if mine != other:
                yield name, field.name, f"ours {mine!r}, theirs {other!r}"


def _heading(files: int, paths: list[Path], seconds: float) -> str:
    about = facts()
    changed = " (and changes)" if about["changed"] else ""
    size = sum(path.stat().st_size for path in paths) >> 20
    return (
        "# Unpacked as others do\n\n"
        f"`tools/compare_unpack.py --files {files}`, {about['date']}, commit "
        f"{about['commit'][:12]}{changed}, Linux {about['kernel']}.\n\n"
        f"Four layers ({size} MiB of tar) with odd whiteouts, hard links, attributes, setuid,\n"
        f"long names and {files:,} small files (`tools/odd_layers.py`), unpacked by us in\n"
        f"{seconds:.1f} s and mounted as an overlay, and by others. Compared one by one: type,\n"
        "mode, owner, time, size, content, link target, other names of the same file, user\n"
        "attributes (not with docker: `docker export` drops them). Docker refuses the fourth\n"
        "layer, which has names twice, and puts files of its own into `etc`, `dev`, `proc` and\n"
        "`sys`.\n"
    )


def _result(name: str, taken: int, count: int, differences: list[tuple[str, str, str]]) -> str:
    rows = [f"## {name}\n", f"{taken} layers, {count:,} files; {len(differences)} differences.\n"]
    if differences:
        kinds = Counter(what for _, what, _ in differences)
        rows.append(", ".join(f"{what}: {n}" for what, n in kinds.most_common()) + "\n")
        rows += [
            f"- `{path[:80]!r}` {what}: {which[:200]}" for path, what, which in differences[:40]
        ]
        rows.append("")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
