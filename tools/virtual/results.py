"""What came of the scenarios, and the page that says it."""

from __future__ import annotations

import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field

from .image import CLONE

HEAD = """
# Tests in a machine with cgroup v2 and systemd

Written by `tools/vm test --report`; see [the page about it](../reference/vm.md). The machine is
QEMU's software emulation (TCG) with two processors and no network card.
"""


@dataclass
class Case:
    """One test or check: `passed`, `failed` or `skipped`, with the reason of the latter two."""

    place: str
    name: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0


@dataclass
class ScenarioResult:
    name: str
    about: str
    cases: list[Case] = field(default_factory=list)
    seconds: float = 0.0
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem and bool(self.cases) and not self.of("failed")

    def of(self, outcome: str) -> list[Case]:
        return [case for case in self.cases if case.outcome == outcome]


def read_junit(text: bytes) -> list[Case]:
    """pytest's own report, which the machine hands out."""
    cases = []
    for node in ElementTree.fromstring(text).iter("testcase"):
        case = Case(
            place=node.get("classname", "").replace(".", "/") + ".py",
            name=node.get("name", ""),
            outcome="passed",
            seconds=float(node.get("time", "0")),
        )
        for child in node:
            if child.tag in ("failure", "error", "skipped"):
                case.outcome = "skipped" if child.tag == "skipped" else "failed"
                case.reason = (child.get("message") or child.text or "").strip()
        cases.append(case)
    return cases


def section(result: ScenarioResult, machine: dict[str, str], commit: str) -> str:
    """A scenario's part of the page, with when and where it was run."""
    lines = [f"## {result.name}", "", result.about, ""]
    facts = [f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC", f"commit {commit}"]
    if machine:
        facts.append(
            f"{machine['system']}, Linux {machine['kernel']}, systemd {machine['systemd']}"
        )
    lines += ["; ".join([*facts, _minutes(result.seconds)]) + ".", ""]
    if result.problem:
        lines += [f"**Not finished:** {_one_line(result.problem)}", ""]
    tests = [case for case in result.cases if case.place != result.name]
    if tests:
        lines += ["| what | passed | skipped | failed |", "|---|---|---|---|"]
        lines += [*_table(tests), ""]
    if checks := [case for case in result.of("passed") if case not in tests]:
        lines += ["Holds:", "", *(f"- {case.name}" for case in checks), ""]
    for title, outcome in (("Failed", "failed"), ("Skipped", "skipped")):
        if chosen := result.of(outcome):
            lines += [f"{title}:", "", *_reasons(chosen), ""]
    return "\n".join(lines).rstrip() + "\n"


def page(old: str, sections: dict[str, str], order: list[str]) -> str:
    """Markdown: the sections, and those of an older page that were not made anew."""
    kept = {text.split("\n", 1)[0]: f"## {text}" for text in old.split("\n## ")[1:]}
    known = {**kept, **sections}
    parts = [known[name].rstrip() for name in order if name in known]
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


def _table(cases: list[Case]) -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for case in cases:
        counts.setdefault(case.place, Counter())[case.outcome] += 1
    rows = [
        f"| `{place}` | {count['passed']} | {count['skipped']} | {count['failed']} |"
        for place, count in counts.items()
    ]
    if len(rows) > 1:
        total = Counter(case.outcome for case in cases)
        rows.append(f"| all | {total['passed']} | {total['skipped']} | {total['failed']} |")
    return rows


def _reasons(cases: list[Case]) -> list[str]:
    """Those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        by_reason.setdefault(_one_line(case.reason), []).append(case.name)
    return [f"- `{'`, `'.join(names)}`: {reason}" for reason, names in by_reason.items()]


def _one_line(text: str) -> str:
    words = " ".join(text.split()).replace("<", "&lt;")
    return words if len(words) <= 300 else words[:297] + "…"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 90 else f"{seconds:.0f} s"


def commit() -> str:
    """Of the clone, and whether it is all there is."""
    git = ["git", "-c", f"safe.directory={CLONE}", "-C", str(CLONE)]
    try:
        name = subprocess.run(
            [*git, "log", "-1", "--format=%h"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "not from a git checkout"
    return f"{name}, with changes that are not committed" if changed.strip() else name
