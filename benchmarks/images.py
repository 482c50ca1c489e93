#!/usr/bin/env python3
"""How long images take: layers unpacked by us, by docker, by umoci and by tar.

    python benchmarks/images.py [--rounds 5] [--debian TAR] [--report docs/results/images.md]

As root, with what is installed of docker.io, umoci, mmdebstrap and tar. Ratios are of one run on
one machine, everybody once a round; what is made is removed between rounds, unmeasured. All of them
are timed to the moment when they say that they are done, and once more with a `sync` of the file
system, since only ours waits for the disk by itself.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from docker_daemon import docker_daemon  # noqa: E402
from machine import facts  # noqa: E402
from measure import Samples  # noqa: E402
from odd_layers import write_docker_archive, write_layout  # noqa: E402

from agentkernel.backends.local.layer_worker import LocalLayerWorker  # noqa: E402

SMALL_FILES = 50_000
TAG = "bench:latest"


@dataclass(frozen=True)
class Way:
    """One way to unpack: `work` is timed, `undo` is not."""

    work: Callable[[], object]
    undo: Callable[[], object]


@dataclass(frozen=True)
class Layer:
    name: str
    plain: Path
    squeezed: Path
    files: int

    @property
    def diff_id(self) -> str:
        with open(self.plain, "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("debian", "small"), help="one of the layers")
    parser.add_argument("--debian", type=Path, help="made by mmdebstrap; unless given, it is made")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if os.getuid():
        print("benchmarks/images.py: needs root, as docker's daemon does", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is removed
    parts = [_heading(options.rounds)]
    makers: dict[str, Callable[[Path], Layer | None]] = {
        "debian": partial(_debian, made=options.debian),
        "small": _small_files,
    }
    for name, make in makers.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="ak-images-") as scratch:
            layer = make(Path(scratch))
            if layer is not None:
                parts.append(_table(layer, measured(layer, Path(scratch), options.rounds)))
                print(parts[-1], flush=True)
        if options.report:
            options.report.write_text("\n".join(parts))
    return 0


# -- what is unpacked ------------------------------------------------------------------------------


def _debian(place: Path, made: Path | None) -> Layer | None:
    if made is not None:
        return _layer("Debian 12, minbase", Path(shutil.copy(made, place / "debian.tar")))
    if not shutil.which("mmdebstrap"):
        print("mmdebstrap is not installed: no Debian", file=sys.stderr)
        return None
    plain = place / "debian.tar"
    words = ["mmdebstrap", "--variant=minbase", "--quiet", "bookworm", str(plain)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=600)
    return _layer("Debian 12, minbase", plain)


def _small_files(place: Path) -> Layer:
    plain = place / "small.tar"
    with tarfile.open(plain, "w") as archive:
        for number in range(SMALL_FILES):
            if number % 100 == 0:
                directory = tarfile.TarInfo(f"d{number // 100}")
                directory.type, directory.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(directory)
            content = hashlib.sha256(b"%d" % number).hexdigest().encode() * (number % 40)
            member = tarfile.TarInfo(f"d{number // 100}/f{number}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return _layer(f"{SMALL_FILES:,} small files", plain)


def _layer(name: str, plain: Path) -> Layer:
    squeezed = plain.with_suffix(".tar.gz")
    with open(plain, "rb") as source, gzip.open(squeezed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    with tarfile.open(plain) as archive:
        files = sum(1 for _ in archive)
    return Layer(name, plain, squeezed, files)


# -- who unpacks it --------------------------------------------------------------------------------


def measured(layer: Layer, place: Path, rounds: int) -> dict[str, tuple[Samples, Samples]]:
    """Seconds until they were done; until all was on the disk."""
    with ExitStack() as stack:
        ways = {**_ours(layer, place), **_tar(layer, place), **_umoci(layer, place, stack)}
        try:
            ways |= _docker(layer, place, stack)
        except RuntimeError as error:
            print(f"docker is left out: {error}", file=sys.stderr)
        found: dict[str, tuple[Samples, Samples]] = {name: (Samples(), Samples()) for name in ways}
        for turn in range(rounds + 1):
            for name, way in ways.items():
                _sync(place)
                started = time.perf_counter()
                way.work()
                done = time.perf_counter() - started
                _sync(place)
                flushed = time.perf_counter() - started
                way.undo()
                if turn:  # the first warms up
                    found[name][0].seconds.append(done)
                    found[name][1].seconds.append(flushed)
        return found


def _sync(place: Path) -> None:
    subprocess.run(["sync", "-f", str(place)], check=True, timeout=600)


def _ours(layer: Layer, place: Path) -> dict[str, Way]:
    worker = LocalLayerWorker()
    target = place / "ours"
    digest = layer.diff_id

    def unpack(blob: Path, sync: bool) -> None:
        target.mkdir()
        worker.unpack(str(blob), digest, str(target), sync=sync)

    def undo() -> None:
        worker.remove(str(target))

    return {
        "ours": Way(lambda: unpack(layer.plain, True), undo),
        "ours, without waiting for the disk": Way(lambda: unpack(layer.plain, False), undo),
        "ours, gzip": Way(lambda: unpack(layer.squeezed, True), undo),
    }


def _tar(layer: Layer, place: Path) -> dict[str, Way]:
    target = place / "tar"

    def unpack(*words: str) -> None:
        target.mkdir()
        _run("tar", "-C", str(target), "--numeric-owner", "-p", *words)

    def undo() -> None:
        LocalLayerWorker().remove(str(target))

    return {
        "tar -x": Way(lambda: unpack("-xf", str(layer.plain)), undo),
        "tar -xz": Way(lambda: unpack("-xzf", str(layer.squeezed)), undo),
    }


def _umoci(layer: Layer, place: Path, stack: ExitStack) -> dict[str, Way]:
    if not shutil.which("umoci"):
        print("umoci is not installed, and left out", file=sys.stderr)
        return {}
    layout, bundle = place / "layout", place / "bundle"
    write_layout(layout, [layer.plain], "bench")
    stack.callback(shutil.rmtree, layout)
    unpack = ("umoci", "unpack", "--image", f"{layout}:bench", str(bundle))
    return {
        "umoci unpack": Way(lambda: _run(*unpack), partial(LocalLayerWorker().remove, str(bundle)))
    }


def _docker(layer: Layer, place: Path, stack: ExitStack) -> dict[str, Way]:
    daemon = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ak-docker-")))
    docker = stack.enter_context(docker_daemon(daemon / "d"))
    archive = place / "image.tar"
    write_docker_archive(archive, [layer.plain], TAG)
    stack.callback(archive.unlink)
    load = (*docker, "load", "-q", "-i", str(archive))
    return {"docker load": Way(lambda: _run(*load), lambda: _run(*docker, "rmi", "-f", TAG))}


def _run(*words: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-300:])


# -- the page --------------------------------------------------------------------------------------


def _heading(rounds: int) -> str:
    about = facts()
    changed = " (and changes)" if about["changed"] else ""
    return (
        "# Images\n\n"
        f"`benchmarks/images.py --rounds {rounds}`, {about['date']}, commit "
        f"{about['commit'][:12]}{changed}, Linux {about['kernel']}, {about['cores']} cores, load "
        f"{about['load']}. Medians; × is a multiple of `ours`.\n"
    )


def _table(layer: Layer, found: dict[str, tuple[Samples, Samples]]) -> str:
    size = layer.plain.stat().st_size / 2**20
    rows = [
        f"## Unpacking {layer.name}\n",
        f"{layer.files:,} entries, {size:.0f} MiB of tar, "
        f"{layer.squeezed.stat().st_size / 2**20:.0f} MiB with gzip.\n",
        "| | done, s | × | on the disk, s | × |",
        "|---|---|---|---|---|",
    ]
    first = found["ours"]
    for name, (done, flushed) in found.items():
        rows.append(
            f"| {name} | {done.median:.2f} | {done.median / first[0].median:.2f} "
            f"| {flushed.median:.2f} | {flushed.median / first[1].median:.2f} |"
        )
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    sys.exit(main())
