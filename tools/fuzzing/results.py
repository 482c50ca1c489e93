"""What a run has shown, as lines and as a page."""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .targets import ROOT

PAGE = ROOT / "docs" / "results" / "fuzzing.md"


@dataclass
class Result:
    name: str
    how: str
    seconds: float
    executions: int = 0
    edges: int = 0
    features: int = 0
    kept: int = 0
    findings: list[str] = field(default_factory=list)

    def line(self) -> str:
        parts = [f"{self.executions} executions"]
        if self.edges:
            parts.append(f"{self.edges} edges, {self.features} features")
        if self.kept:
            parts.append(f"{self.kept} new inputs kept")
        parts.append(f"{len(self.findings)} findings" if self.findings else "no finding")
        return f"{self.name} ({self.how}): {'; '.join(parts)}"


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", *words],
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return done.stdout.decode(errors="replace").strip()


def commit() -> str:
    """The commit that was fuzzed, and whether there was more than that."""
    changed = _git("status", "--porcelain", "--", "agentd", "src", "tests/fuzz")
    return (_git("rev-parse", "--short=12", "HEAD") or "unknown") + (
        " (changed)" if changed else ""
    )


def write_page(results: list[Result], page: Path = PAGE) -> None:
    """Replace the page of results by this run."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    total = sum(result.seconds for result in results)
    lines = [
        "# Fuzzing: the last reported run",
        "",
        "Written by `tools/fuzz run --report`; what the targets are: "
        "[reference](../reference/fuzzing.md).",
        "",
        f"{today}, commit {commit()}, {total:.0f} s of fuzzing in all.",
        "",
        "| target | how | seconds | executions | edges | features | findings |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        edges = f"{result.edges} | {result.features}" if result.edges else "– | –"
        lines.append(
            f"| `{result.name}` | {result.how} | {result.seconds:.0f} | {result.executions} | "
            f"{edges} | {len(result.findings) or 'none'} |"
        )
    findings = [(result.name, text) for result in results for text in result.findings]
    if findings:
        lines += ["", "Findings:", ""]
        lines += [f"- `{name}`: {text.splitlines()[0]}" for name, text in findings]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")
