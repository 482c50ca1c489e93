"""The page of the docs: one run's results, verdicts, and where our own time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lines import Line
from phases import Phase
from report import Verdict


def write(
    lines: dict[str, Line],
    verdicts: list[Verdict],
    about: dict[str, Any],
    missing: dict[str, str],
    spent: list[tuple[Phase, float]],
    picture: Path | None,
) -> str:
    """Markdown."""
    command = "benchmarks/run --check --report FILE [--chart FILE]"
    if about["backend"] != "native":
        command += f" --backend {about['backend']}"
    parts = [
        f"# Benchmarks of `{about['backend']}`\n",
        f"Written by `{command}`: everything in one run on one machine, in turns; times are"
        " medians.\n",
        f"{about['date']}, commit {about['commit'][:12]}, {about['cpu']}, {about['cores']} cores, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}, "
        f"{about['user']}, load before {about['load']}.\n",
    ]
    if picture:
        parts.append(f"![the first three lines as bars]({picture.name})\n")
    parts += ["## What the design holds\n", "| held | line | measured |", "|---|---|---|"]
    for verdict in verdicts:
        words, _, measured = verdict.words.rpartition(": ")
        held = {True: "yes", False: "**no**", None: "not judged"}[verdict.held]
        parts.append(f"| {held} | {words} | {measured} |")
    parts.append("")
    for line in lines.values():
        notes = f" ({'; '.join(line.notes)})" if line.notes else ""
        parts += [f"## {line.title[0].upper()}{line.title[1:]}{notes}\n"]
        parts += [f"| who | {line.unit} | p95 | times the first |", "|---|---:|---:|---:|"]
        first = next(iter(line.values.values()))
        for name, value in line.values.items():
            spread = line.spread.get(name)
            p95 = f"{spread['p95_ms']:.2f}" if spread else ""
            parts.append(f"| {name} | {value:.2f} | {p95} | {value / first if first else 0:.2f} |")
        parts.append("")
    if spent:
        parts += ["## Where the time of a life goes, in process\n", "| phase | ms |", "|---|---:|"]
        parts += [f"| {'– ' * phase.depth}{phase.words} | {ms:.2f} |" for phase, ms in spent]
        parts.append("")
    parts += [f"Not here: {name}: {how}\n" for name, how in missing.items()]
    return "\n".join(parts)
