#!/usr/bin/env python3
"""How long a sandbox of an image takes: ten layers, nothing kept warm; beside what others take.

    python benchmarks/image_create.py [--rounds 30] [--report docs/results/image-create.md]

Create, run `true`, destroy; and create alone, and the first ever, when the layers still have to be
unpacked. Everybody has the same image, made here, and takes a turn in every round. Docker and runc
need root. runc has the layers flat in a directory, as it knows none; bwrap has them as an overlay.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from machine import facts  # noqa: E402
from measure import Samples, Work, command, rounds  # noqa: E402
from odd_layers import write_docker_archive  # noqa: E402
from ours import Ours  # noqa: E402
from rivals import BUSYBOX, Rivals, output_of  # noqa: E402

from agentkernel.client._async.sandbox import AsyncSandbox  # noqa: E402
from agentkernel.conformance.images import store_image  # noqa: E402
from agentkernel.images.oci.store import ImageStore  # noqa: E402
from agentkernel.kernel.runs import Runs  # noqa: E402
from agentkernel.kernel.spec import SandboxSpec  # noqa: E402

LAYERS = 10
FILES = 200
IMAGE = "localhost/bench:10"
_SLOW = {"docker run": 10, "podman run": 10, "ours, command line": 20}
_FIRST_ROUNDS = 5


class SameImage(Rivals):
    """The rivals with the image of ten layers. `layers`: tars, lowest first."""

    def __init__(self, place: Path, layers: list[Path]) -> None:
        super().__init__(place)
        self._layers = layers

    def _import(self, words: list[str]) -> None:
        archive = self._place / "image.tar"
        if not archive.exists():
            write_docker_archive(archive, self._layers, "bench:latest")
        output_of(*words, "load", "-q", "-i", str(archive))

    def _make_bundle(self, runc: str) -> None:
        super()._make_bundle(runc)
        for layer in self._layers:
            with tarfile.open(layer) as tar:
                tar.extractall(self._bundle / "rootfs", filter="fully_trusted")

    def bwrap_words(self) -> list[str]:
        assert self.bwrap
        lowers = []
        for layer in self._layers:
            path = self._place / "lowers" / layer.stem
            if not path.exists():
                with tarfile.open(layer) as tar:
                    tar.extractall(path, filter="fully_trusted")
            lowers += ["--overlay-src", str(path)]
        return [
            *(self.bwrap, "--unshare-all", *lowers, "--tmp-overlay", "/"),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent"),
        ]


def make_layers(place: Path) -> list[Path]:
    """Busybox, and nine layers of small files above it."""
    place.mkdir()
    paths = []
    for number in range(LAYERS):
        path = place / f"{number}.tar"
        with tarfile.open(path, "w") as tar:
            if number == 0:
                _add(tar, "bin/busybox", BUSYBOX.read_bytes())
                for name in ("sh", "true"):
                    link = tarfile.TarInfo(f"bin/{name}")
                    link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                    tar.addfile(link)
            for file in range(FILES):
                content = hashlib.sha256(b"%d/%d" % (number, file)).hexdigest().encode() * 64
                _add(tar, f"srv/d{file % 20}/{number}-{file}", content)
        paths.append(path)
    return paths


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o755
    tar.addfile(member, BytesIO(content))


def store(state_dir: Path, layers: list[Path]) -> None:
    store_image(
        ImageStore(state_dir / "images"), IMAGE, [path.read_bytes() for path in layers],
        {"Env": ["PATH=/bin"]},
    )  # fmt: skip


# -- who takes part ------------------------------------------------------------------------------


def whole(ours: Ours) -> dict[str, Work]:
    """Create, `true`, destroy."""
    spec = SandboxSpec(image=IMAGE)

    async def in_process() -> None:
        sandbox = await ours.runs.create(spec)
        try:
            await ours.exec_in_process(sandbox)
        finally:
            await ours.runs.destroy(sandbox)

    async def over_http() -> None:
        result = await AsyncSandbox.run(["true"], transport=ours.transport, image=IMAGE)
        assert result.exit_code == 0, result

    words = [*ours.cli(), "run", "-q", "--workspace", "none", "--image", IMAGE, "--", "true"]
    return {
        "ours, in process": in_process,
        "ours, over HTTP": over_http,
        "ours, command line": lambda: command(*words),
        "ours, in process, the host image": ours.run_in_process,
    }


async def parts(ours: Ours, count: int) -> dict[str, Samples]:
    """Until it is made; until its first command has ended. Its removal is not counted."""
    found: dict[str, Samples] = {}

    def add(name: str, started: float) -> None:
        found.setdefault(name, Samples()).seconds.append(time.perf_counter() - started)

    for turn in range(count + 1):
        if turn == 1:  # the first warms up
            found.clear()
        started = time.perf_counter()
        sandbox = await ours.runs.create(SandboxSpec(image=IMAGE))
        add("create, in process", started)
        await ours.exec_in_process(sandbox)
        add("create and first exec, in process", started)
        await ours.runs.destroy(sandbox)
        started = time.perf_counter()
        remote = await AsyncSandbox.create(transport=ours.transport, image=IMAGE, ephemeral=True)
        add("create, over HTTP", started)
        result = await remote.exec(["true"])
        add("create and first exec, over HTTP", started)
        assert result.exit_code == 0, result
        await remote.remove()
    return found


async def first_ever(place: Path, layers: list[Path]) -> Samples:
    """The layers are unpacked and on disk before the sandbox is made."""
    found = Samples()
    for number in range(_FIRST_ROUNDS):
        state = place / f"first-{number}"
        store(state, layers)
        async with Runs(state) as runs:
            started = time.perf_counter()
            sandbox = await runs.create(SandboxSpec(image=IMAGE))
            found.seconds.append(time.perf_counter() - started)
            await runs.destroy(sandbox)
        shutil.rmtree(state)
    return found


# -- the page ------------------------------------------------------------------------------------


async def measured(place: Path, count: int) -> str:
    layers = make_layers(place / "layers")
    (place / "rivals").mkdir()
    with SameImage(place / "rivals", layers) as rivals:
        async with Ours("native", place / "ours") as ours:
            for state in (ours.runs.state_dir, ours.state_dir / "daemon"):
                store(state, layers)
            contestants = {**whole(ours), **rivals.run_true()}
            contestants.pop("runsc run", None)
            table = await rounds(contestants, count, slow=_SLOW)
            pieces = await parts(ours, count)
        first = await first_ever(place, layers)
        missing = rivals.missing
    return _page(table, pieces, first, missing, count)


def _page(
    table: dict[str, Samples],
    pieces: dict[str, Samples],
    first: Samples,
    missing: dict[str, str],
    count: int,
) -> str:
    about = facts()
    changed = " (and changes)" if about["changed"] else ""
    unit = table["ours, in process"].median
    lines = [
        "# Sandboxes of images",
        "",
        f"`benchmarks/image_create.py --rounds {count}`, {about['date']}, commit "
        f"{about['commit'][:12]}{changed}, Linux {about['kernel']}, {about['cores']} cores, load "
        f"{about['load']}, {about['user']}.",
        "",
        f"An image of {LAYERS} layers with {FILES} files each, stored and unpacked; nothing is "
        "kept warm. Medians; × is a multiple of ours in process.",
        "",
        "| create, `true`, destroy | ms | p95 | × |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {_ms(found)} | {found.median / unit:.1f} |" for name, found in table.items()
    ]
    lines += ["", "| ours, without the removal | ms | p95 |", "|---|---|---|"]
    lines += [
        f"| {name} | {_ms(found)} |"
        for name, found in {**pieces, "create, the layers not yet unpacked": first}.items()
    ]
    if missing:
        left_out = (f"{name}: {how.partition(' [')[0]}" for name, how in missing.items())
        lines += ["", "Left out: " + "; ".join(left_out) + "."]
    return "\n".join([*lines, ""])


def _ms(found: Samples) -> str:
    return f"{found.median * 1000:.1f} | {found.p95 * 1000:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    with tempfile.TemporaryDirectory(prefix="ak-image-create-") as scratch:
        page = asyncio.run(measured(Path(scratch), options.rounds))
    print(page)
    if options.report:
        options.report.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
