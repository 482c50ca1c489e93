"""The command line of tools/vm."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import image as images
from . import machine as machines
from . import tree

FAILURE = 125


def main() -> int:
    options = parser().parse_args()
    try:
        status: int = options.action(options)
        return status
    except (images.ImageProblem, machines.MachineProblem) as problem:
        print(f"vm: {problem}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tools/vm", description=__doc__)
    top.add_argument("--suite", choices=tuple(images.SUITES), default="bookworm")
    verbs = top.add_subparsers(required=True, metavar="VERB")
    build = verbs.add_parser("build", help="make the image, or make it anew")
    build.set_defaults(action=build_image)
    run = verbs.add_parser("run", help="boot, run a command in the clone, end")
    run.add_argument("--user", choices=("root", "tester", "delegated"), default="root")
    run.add_argument("--timeout", type=float, default=600, help="seconds for the command")
    run.add_argument("command", nargs="+")
    run.set_defaults(action=run_command)
    return top


def build_image(options: argparse.Namespace) -> int:
    print(images.get(options.suite, rebuild=True).folder)
    return 0


def run_command(options: argparse.Namespace) -> int:
    image = images.get(options.suite)
    with tempfile.TemporaryDirectory(prefix="vm-") as scratch:
        disk = Path(scratch) / "tree.ext4"
        tree.make_disk(disk, options.suite)
        with machines.boot(image, Path(scratch), disk) as machine:
            result = machine.run(
                options.command, user=options.user, timeout=options.timeout, live=True
            )
    if result.timed_out:
        print(f"vm: not finished after {options.timeout:.0f} s", file=sys.stderr)
    return result.status
