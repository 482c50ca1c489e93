"""agentkernel beside what a user would pick instead, in one run: medians and ratios."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import chart
import page
import phases
import report
from lines import LINES, Line
from machine import ROOT, facts
from ours import Ours
from rivals import Rivals

QUICK, FULL = 6, 60


def main() -> int:
    options = _options()
    about = facts()
    if about["load"] > 0.5:
        print(f"note: the load of this machine is {about['load']}; figures will be noisy")
    with tempfile.TemporaryDirectory(prefix="ak-bench-") as place:
        lines, missing, spent = asyncio.run(_measure(options, Path(place)))
    verdicts = report.judge(lines)
    print(report.table(lines))
    for verdict in verdicts:
        word = {True: "held", False: "MISSED", None: "?"}[verdict.held]
        print(f"{word:<7} {verdict.words}")
    for name, how in missing.items():
        print(f"not here: {name}: {how}")
    if options.json:
        body = report.to_dict(lines, verdicts, {**about, "backend": options.backend})
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    if options.chart:
        chart.draw(lines, options.chart)
    if options.report:
        about = {**about, "backend": options.backend}
        text = page.write(lines, verdicts, about, missing, spent, options.chart)
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text)
    return 1 if options.check and any(verdict.held is False for verdict in verdicts) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument("--backend", default="native", help="the engine of ours (native)")
    parser.add_argument("--only", action="append", choices=LINES, help="a line; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a line of the design is missed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw them (PNG)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page of the docs")
    return parser.parse_args()


async def _measure(
    options: argparse.Namespace, place: Path
) -> tuple[dict[str, Line], dict[str, str], list[tuple[phases.Phase, float]]]:
    count = QUICK if options.quick else FULL
    lines: dict[str, Line] = {}
    with Rivals(place) as rivals:
        async with Ours(options.backend, place / "state") as ours:
            for name in options.only or LINES:
                print(f"… {name}", file=sys.stderr)
                lines[name] = await LINES[name](ours, rivals, count)
            spent = await phases.measure(ours) if options.report else []
        return lines, rivals.missing, spent


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    sys.exit(main())
