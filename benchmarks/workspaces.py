"""How long a sandbox takes to start over a big project, compared with a small one.

    python benchmarks/workspaces.py [FILES]

In process: create, `true`, destroy. The first start over a project looks at all of its names, to
leave out those that look like secrets; later ones at its directories only.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.runs import Runs
from agentkernel.kernel.spec import SandboxSpec

_A_DIRECTORY = 100
_ROUNDS = 40


def make_project(path: Path, files: int) -> None:
    for number in range(files):
        directory = path / f"d{number // _A_DIRECTORY}"
        if number % _A_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number}.py").touch()


async def one(runs: Runs, project: Path) -> float:
    start = time.perf_counter()
    sandbox = await runs.create(SandboxSpec(workspace=str(project)))
    await runs.run(sandbox, ["true"], ProcessOptions(env=dict(sandbox.environment)))
    await runs.destroy(sandbox)
    return (time.perf_counter() - start) * 1000


async def measure(scratch: Path, files: int) -> None:
    small, big = scratch / "small", scratch / "big"
    make_project(small, _A_DIRECTORY)
    make_project(big, files)
    async with Runs(scratch / "state") as runs:
        await one(runs, small)  # the host image
        first = await one(runs, big)
        # In turns, so that whatever else the machine does meets both.
        pairs = [(await one(runs, small), await one(runs, big)) for _ in range(_ROUNDS)]
    of_small = statistics.median(pair[0] for pair in pairs)
    of_big = statistics.median(pair[1] for pair in pairs)
    print(f"{_A_DIRECTORY} files: {of_small:.1f} ms; {files} files: {of_big:.1f} ms", end="")
    print(f" ({of_big / of_small:.2f}x), the first time {first:.1f} ms")


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(prefix="agentkernel-workspaces-") as scratch:
        asyncio.run(measure(Path(scratch), files))


if __name__ == "__main__":
    main()
