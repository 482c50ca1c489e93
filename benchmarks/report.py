"""Results as a table, as JSON, and against what the design holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from lines import Line


class Hold(NamedTuple):
    """`ours` of a line is at most `factor` times `other`; of a rate, at least."""

    line: str
    ours: str
    factor: float
    other: str

    def words(self) -> str:
        if self.factor >= 1:
            return f"{self.ours} ≤ {self.factor:g} × {self.other}"
        return f"{self.ours} ≥ {1 / self.factor:g} × faster than {self.other}"


# Section 7 of the design: ratios within one run on one machine.
HOLDS = (
    Hold("run", "in process", 1.5, "bwrap"),
    Hold("run", "in process", 1 / 30, "docker run"),
    Hold("run", "over the socket", 1 / 20, "docker run"),
    Hold("exec", "in process", 3, "host spawn"),
    Hold("exec", "over the socket", 1 / 20, "docker exec"),
    Hold("cli", "agentkernel run", 4, "python3 -c pass"),
    Hold("http", "GET /v1/version", 2, "bare uvicorn"),
    Hold("cli", "agentkernel run", 1 / 3, "docker run"),
)
IDLE_KB = 450.0


class Verdict(NamedTuple):
    """None: it could not be judged, and why is in the words."""

    held: bool | None
    words: str


def judge(lines: dict[str, Line]) -> list[Verdict]:
    verdicts = []
    for hold in HOLDS:
        values = lines[hold.line].values if hold.line in lines else {}
        if hold.ours in values and hold.other in values:
            ratio = values[hold.ours] / values[hold.other]
            shown = f"{ratio:.2f} ×" if hold.factor >= 1 else f"{1 / ratio:.1f} × faster"
            verdicts.append(Verdict(ratio <= hold.factor, f"{hold.line}: {hold.words()}: {shown}"))
        elif values:
            verdicts.append(Verdict(None, f"{hold.line}: {hold.words()}: not here"))
    if "idle" in lines:
        used = lines["idle"].values["in process"]
        verdicts.append(Verdict(used <= IDLE_KB, f"idle: ≤ {IDLE_KB:g} kB: {used:g} kB"))
    if "alive" in lines:
        left = lines["alive"].values["left"]
        verdicts.append(Verdict(left == 0, f"alive: {lines['alive'].notes[0]}"))
    return verdicts


def table(lines: dict[str, Line]) -> str:
    """Each line with its contestants, and how many times the first one's each takes."""
    rows = []
    for line in lines.values():
        notes = f" ({'; '.join(line.notes)})" if line.notes else ""
        rows.append(f"{line.title}, {line.unit}{notes}")
        first = next(iter(line.values.values()))
        for name, value in line.values.items():
            spread = line.spread.get(name, {})
            p95 = f"  p95 {spread['p95_ms']:.2f}" if spread else ""
            ratio = f"{value / first:8.2f} ×" if first else ""
            rows.append(f"  {name:<18} {value:10.2f} {ratio}{p95}")
        rows.append("")
    return "\n".join(rows)


def to_dict(lines: dict[str, Line], verdicts: list[Verdict], about: dict[str, Any]) -> Any:
    return {
        **about,
        "lines": {
            name: {
                "title": line.title,
                "unit": line.unit,
                "values": line.values,
                "spread": line.spread,
                "notes": line.notes,
            }
            for name, line in lines.items()
        },
        "held": [{"held": verdict.held, "line": verdict.words} for verdict in verdicts],
    }
