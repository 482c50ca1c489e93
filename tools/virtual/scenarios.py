"""Kinds of scenarios, each with machines of its own: tests as some user, or a function."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import machine as machines
from .image import CLONE, Image
from .results import Case, ScenarioResult, read_junit

JUNIT = "/var/tmp/junit.xml"
# For one test: emulation is about ten times slower, and other work on this machine adds to that.
TEST_SECONDS = 600


@dataclass(frozen=True)
class Lab:
    """What a scenario needs to start machines."""

    image: Image
    scratch: Path
    tree: Path

    @contextmanager
    def machine(self, disk: Path | None = None) -> Iterator[machines.Machine]:
        with machines.boot(self.image, self.scratch, self.tree, disk) as machine:
            print(f"vm: up after {machine.boot_seconds:.0f} s", file=sys.stderr, flush=True)
            yield machine

    def new_disk(self) -> Path:
        """A disk that stays from one boot to the next."""
        path = self.scratch / "kept.ext4"
        command = ["cp", "--sparse=always", "--reflink=auto", str(self.image.disk), str(path)]
        subprocess.run(command, check=True, timeout=300)
        return path


@dataclass(frozen=True)
class Tests:
    """pytest as one kind of user."""

    name: str
    about: str
    user: str
    paths: tuple[str, ...]
    seconds: float = 3600

    def run(self, lab: Lab, result: ScenarioResult, keyword: str | None) -> dict[str, str]:
        paths = [path for path in self.paths if (CLONE / path).exists()]
        missing = [path for path in self.paths if path not in paths]
        command = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-o", f"timeout={TEST_SECONDS}", f"--junitxml={JUNIT}"]
        if keyword:
            command += ["-k", keyword]
            result.about += f" Only `-k {keyword!r}`."
        with lab.machine() as machine:
            done = machine.run([*command, *paths], user=self.user, timeout=self.seconds, live=True)
            report = machine.run(["cat", JUNIT])
            if report.status == 0:
                result.cases = read_junit(report.stdout)
            result.cases += [Case(path, path, "skipped", "not in this tree") for path in missing]
            if done.timed_out:
                result.problem = f"not finished after {self.seconds:.0f} s"
            elif done.status not in (0, 1):
                result.problem = f"pytest ended with {done.status}"
            return machine.about


class Holds(Protocol):
    """Notes what was found to hold, or why it could not be looked at."""

    def __call__(self, what: str, *, skipped: str = "") -> None: ...


Check = Callable[[Lab, Holds], dict[str, str]]


@dataclass(frozen=True)
class Checks:
    """A function that says what it has found to hold, and raises AssertionError otherwise."""

    name: str
    about: str
    check: Check

    def run(self, lab: Lab, result: ScenarioResult, keyword: str | None) -> dict[str, str]:
        def holds(what: str, *, skipped: str = "") -> None:
            words = f"skipped: {what}: {skipped}" if skipped else f"holds: {what}"
            print(f"vm: {words}", file=sys.stderr, flush=True)
            outcome = "skipped" if skipped else "passed"
            result.cases.append(Case(self.name, what, outcome, skipped))

        try:
            return self.check(lab, holds)
        except AssertionError as error:
            result.cases.append(Case(self.name, "what came next", "failed", str(error)))
            return {}


def run_all(
    lab: Lab,
    chosen: list[Tests | Checks],
    keyword: str | None,
    note: Callable[[ScenarioResult, dict[str, str]], None],
) -> list[ScenarioResult]:
    """Runs the scenarios; `note` is called after each."""
    results: list[ScenarioResult] = []
    for scenario in chosen:
        print(f"\nvm: === {scenario.name}", file=sys.stderr, flush=True)
        result = ScenarioResult(scenario.name, scenario.about)
        started = time.monotonic()
        about: dict[str, str] = {}
        try:
            about = scenario.run(lab, result, keyword)
        except machines.MachineProblem as problem:
            result.problem = str(problem)
        result.seconds = time.monotonic() - started
        results.append(result)
        note(result, about)
    return results
