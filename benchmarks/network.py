"""A sandbox's way out beside none at all: connections and bytes through the gateway as parts of
what the same client does on the host; what `run` pays for a network, what an idle one holds."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from machine import ROOT, available_bytes, facts
from network_ends import CLIENT, Server

SPLICED, INTERCEPTED = "spliced.test", "intercepted.test"
# Section 7 of the design: the part of direct throughput that has to be left.
HOLDS = {SPLICED: 0.40, INTERCEPTED: 0.20}
IDLE_KB = 600.0
WAYS = {"direct": "127.0.0.1", "spliced": SPLICED, "intercepted": INTERCEPTED}
# Plain requests are read one by one, whatever the rule.
PLAIN_WAYS = {"direct": "127.0.0.1", "request by request": SPLICED}


class Figure(NamedTuple):
    """`part`: of what was measured directly; None where nothing is."""

    what: str
    way: str
    value: float
    unit: str
    part: float | None = None


class Bench:
    """A server on loopback, a daemon of its own whose configuration names it, one sandbox."""

    def __init__(self, place: Path, rounds: int) -> None:
        self.rounds = rounds
        self.server = Server(place)
        self.state = place / "state"
        self.state.mkdir(mode=0o700)
        config = place / "config" / "agentkernel"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(
            f'[network]\nupstream_ca = "{self.server.ca}"\nupstream_proxy = "none"\n'
            f'[network.hosts]\n"{SPLICED}" = "127.0.0.1"\n"{INTERCEPTED}" = "127.0.0.1"\n'
        )
        os.environ["XDG_CONFIG_HOME"] = str(config.parent)
        os.environ["AGENTKERNEL_STATE_DIR"] = str(self.state)
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        self.python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else "python3"

    def ask(self, way: str, mode: str, amount: int) -> float:
        """What the client says of one turn."""
        host = {**WAYS, **PLAIN_WAYS}[way]
        words = [self.python, "-I", "-c", CLIENT, mode, host, *self.server.ports(mode)]
        words.append(str(amount))
        if way != "direct":
            from agentkernel import Sandbox

            done = Sandbox.connect("bench").exec(words)
            if done.exit_code != 0:
                raise RuntimeError(f"{mode} {way}: {done.stderr[-500:]}")
            return float(done.stdout)
        output = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
        return float(output.stdout)

    def compare(self, what: str, mode: str, unit: str, amount: int) -> list[Figure]:
        """Every way once a round, so that a slow moment hits them all alike; medians."""
        ways = PLAIN_WAYS if mode == "echo" else WAYS
        found: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(self.rounds + 1):
            for way, samples in found.items():
                rate = self.ask(way, mode, amount)
                if turn:
                    samples.append(rate)
        medians = {way: statistics.median(samples) for way, samples in found.items()}
        return [
            Figure(what, way, rate, unit, rate / medians["direct"]) for way, rate in medians.items()
        ]

    def lives(self) -> list[Figure]:
        """`agentkernel run -- true` by the command line, without and with a network."""
        ways = {
            "without network": ["--network", "none"],
            "with network": ["--allow", f"{SPLICED}:443"],
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(self.rounds * 3 + 1):
            for way, flags in ways.items():
                words = [*_CLI, "run", *flags, "--", "true"]
                started = time.perf_counter()
                subprocess.run(words, check=True, timeout=60, capture_output=True)
                if turn:
                    found[way].append((time.perf_counter() - started) * 1000)
        medians = {way: statistics.median(samples) for way, samples in found.items()}
        first = medians["without network"]
        return [Figure("run", way, ms, "ms", ms / first) for way, ms in medians.items()]

    def idle(self, many: int) -> list[Figure]:
        """Loss of MemAvailable over many that do nothing, shared among them; in turns, because
        others on the machine gain and lose meanwhile."""
        from agentkernel import Sandbox

        ways: dict[str, dict[str, Any]] = {
            "without network": {"presets": ["none"]},
            "with network": {"presets": [], "allow": [f"{SPLICED}:443"]},
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(3):
            for way, network in ways.items():
                before = _settled()
                sandboxes = [Sandbox.create(network=network) for _ in range(many)]
                found[way].append((before - _settled()) / many / 1024)
                for sandbox in sandboxes:
                    sandbox.remove()
        return [
            Figure(f"idle, over {many}", way, statistics.median(used), "kB")
            for way, used in found.items()
        ]


_CLI = [sys.executable, "-P", "-m", "agentkernel"]


def main() -> int:
    options = _options()
    about = facts()
    if about["load"] > 0.5:
        print(f"note: the load of this machine is {about['load']}; figures will be noisy")
    quick = options.quick
    with tempfile.TemporaryDirectory(prefix="ak-net-") as place:
        bench = Bench(Path(place), 2 if quick else 5)
        try:
            figures = _measure(bench, quick)
        finally:
            bench.server.close()
            subprocess.run([*_CLI, "daemon", "stop"], timeout=60, check=False)
    verdicts = _judge(figures)
    for figure in figures:
        part = "" if figure.part is None else f"  {figure.part:6.2f} ×"
        print(f"{figure.what:<34} {figure.way:<18} {figure.value:10.1f} {figure.unit:<8}{part}")
    for held, words in verdicts:
        print(f"{'held' if held else 'MISSED':<7} {words}")
    if options.json:
        body = {**about, "figures": [figure._asdict() for figure in figures]}
        options.json.write_text(json.dumps(body, indent=2) + "\n")
    if options.report:
        options.report.write_text(_page(figures, verdicts, about))
    return 1 if options.check and not all(held for held, _ in verdicts) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run_network", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a line of the design is missed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page of the docs")
    return parser.parse_args()


def _measure(bench: Bench, quick: bool) -> list[Figure]:
    from agentkernel import Sandbox

    ports = [int(port) for mode in ("down", "echo") for port in bench.server.ports(mode)]
    wide = {"connections": 4096, "connections_per_second": 65536}
    rules = [
        {"host": SPLICED, "ports": ports},
        {"host": INTERCEPTED, "ports": ports, "methods": ["GET", "POST"]},
    ]
    sandbox = Sandbox.create(name="bench", network={"rules": rules, "caps": wide})
    size = 64 if quick else 512
    steps: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("down", lambda: bench.compare("TLS, download", "down", "MiB/s", size)),
        ("up", lambda: bench.compare("TLS, upload", "up", "MiB/s", size)),
        ("tls", lambda: bench.compare("new TLS connections", "tls", "/s", 50 if quick else 300)),
        ("echo", lambda: bench.compare("new HTTP connections", "echo", "/s", 50 if quick else 500)),
        ("run", bench.lives),
        ("idle", lambda: bench.idle(20 if quick else 100)),
    ]
    figures: list[Figure] = []
    for name, step in steps:
        print(f"… {name}", file=sys.stderr)
        figures += step()
    sandbox.remove()
    return figures


def _judge(figures: list[Figure]) -> list[tuple[bool, str]]:
    verdicts = []
    for figure in figures:
        least = HOLDS.get(WAYS.get(figure.way, ""))
        if least is not None and figure.unit == "MiB/s" and figure.part is not None:
            words = f"{figure.what}, {figure.way} ≥ {least:.0%} of direct: {figure.part:.0%}"
            verdicts.append((figure.part >= least, words))
        if figure.what.startswith("idle") and figure.way == "with network":
            words = f"{figure.what}, {figure.way} ≤ {IDLE_KB:g} kB: {figure.value:.0f} kB"
            verdicts.append((figure.value <= IDLE_KB, words))
    return verdicts


def _settled() -> int:
    """MemAvailable when it has stopped moving: the kernel gives things back late."""
    last = available_bytes()
    for _ in range(40):
        time.sleep(0.25)
        now = available_bytes()
        if abs(now - last) < 512 * 1024:
            return now
        last = now
    return last


def _page(figures: list[Figure], verdicts: list[tuple[bool, str]], about: dict[str, Any]) -> str:
    """Markdown."""
    parts = [
        "# Benchmarks of the network\n",
        "Written by `benchmarks/run_network --check --report FILE`: one client, one server on "
        "loopback; directly, and from a sandbox through the gateway, in turns; medians.\n",
        f"{about['date']}, commit {about['commit'][:12]}, {about['cpu']}, {about['cores']} cores, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}, "
        f"{about['user']}, load before {about['load']}.\n",
        "## What the design holds\n",
        "| held | line | measured |",
        "|---|---|---|",
    ]
    for held, words in verdicts:
        line, _, measured = words.rpartition(": ")
        parts.append(f"| {'yes' if held else '**no**'} | {line} | {measured} |")
    parts += ["\n## Figures\n", "| what | way | value | times the first |", "|---|---|---:|---:|"]
    for figure in figures:
        part = "" if figure.part is None else f"{figure.part:.2f}"
        parts.append(
            f"| {figure.what} | {figure.way} | {figure.value:.1f} {figure.unit} | {part} |"
        )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    sys.exit(main())
