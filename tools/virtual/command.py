"""The command line of tools/vm."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from . import image as images
from . import machine as machines
from . import results, tree
from .agreed import SCENARIOS
from .scenarios import Lab, run_all

FAILURE = 125
OUTCOMES = ("passed", "skipped", "failed")


def main() -> int:
    options = parser().parse_args()
    # By unwinding, so that scratch files go too; QEMU ends in any case.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
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
    test = verbs.add_parser("test", help="run the agreed set, or parts of it")
    names = [scenario.name for scenario in SCENARIOS]
    test.add_argument("--report", type=Path, metavar="FILE", help="write a page with the results")
    test.add_argument("-k", dest="keyword", help="pytest's -k, for the scenarios that are tests")
    # argparse does not check a default of several words against `choices`.
    test.add_argument("scenario", nargs="*", metavar="SCENARIO", help=", ".join(names))
    test.set_defaults(action=run_tests)
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


def run_tests(options: argparse.Namespace) -> int:
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    if unknown := set(options.scenario) - set(by_name):
        print(f"vm: no scenario {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [by_name[name] for name in options.scenario or by_name]
    image = images.get(options.suite)
    commit = results.commit()  # of the tree that is copied now

    def note(result: results.ScenarioResult, about: dict[str, str]) -> None:
        if options.report:
            old = options.report.read_text() if options.report.exists() else ""
            section = results.section(result, about, commit)
            options.report.parent.mkdir(parents=True, exist_ok=True)
            options.report.write_text(results.page(old, {result.name: section}, list(by_name)))

    with tempfile.TemporaryDirectory(prefix="vm-") as scratch:
        disk = Path(scratch) / "tree.ext4"
        tree.make_disk(disk, options.suite)
        found = run_all(Lab(image, Path(scratch), disk), chosen, options.keyword, note)
    for result in found:
        counts = ", ".join(f"{len(result.of(word))} {word}" for word in OUTCOMES)
        print(f"{result.name}: {counts} {result.problem}".rstrip())
    return 0 if all(result.good for result in found) else 1
