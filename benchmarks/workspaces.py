"""How long a sandbox takes to start over a big project, compared with a small one.

    python benchmarks/workspaces.py [FILES] [--report FILE]

In process: create, `true`, destroy. The first start over a project looks at all of its names, to
leave out those that look like secrets; later ones at its directories only, while the sandbox is
launched.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from machine import facts

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


async def measure(scratch: Path, files: int) -> list[str]:
    """Lines of a table: how many files, and how long it took."""
    small, big = scratch / "small", scratch / "big"
    make_project(small, _A_DIRECTORY)
    make_project(big, files)
    async with Runs(scratch / "state") as runs:
        await one(runs, small)  # the host image
        first = await one(runs, big)
        # In turns, so that whatever else the machine does meets both.
        pairs = [(await one(runs, small), await one(runs, big)) for _ in range(_ROUNDS)]
    rows = []
    for words, chosen in (("median", statistics.median), ("fastest", min)):
        of_small = chosen([pair[0] for pair in pairs])
        of_big = chosen([pair[1] for pair in pairs])
        ratio = of_big / of_small
        rows.append(f"| {words} of {_ROUNDS} | {of_small:.1f} ms | {of_big:.1f} ms | {ratio:.2f} |")
    return [*rows, f"| the first time | | {first:.1f} ms | |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=100_000)
    parser.add_argument("--report", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentkernel-workspaces-") as scratch:
        rows = asyncio.run(measure(Path(scratch), options.files))
    heads = (
        f"| | {_A_DIRECTORY} files | {options.files} files | times |",
        "|---|---:|---:|---:|",
    )
    text = "\n".join((*heads, *rows))
    print(text)
    if options.report:
        about = facts()
        where = (
            f"{about['date']}, commit {about['commit'][:12]}, {about['cpu']}, {about['cores']} "
            f"cores, {about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}, "
            f"{about['user']}, load before {about['load']}."
        )
        Path(options.report).write_text(
            "# A big workspace\n\nWritten by `benchmarks/workspaces.py --report FILE`: create, "
            "`true`, destroy in process, over a small project and a big one, in turns. Held: at "
            "most 1.2 times."
            f"\n\n{where}\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
