"""Valid operations in an order nobody thought of: lives and dies of processes, streams and
connections crossing each other. Worth most with a build that has sanitizers."""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Any

import pytest

from .conftest import Boot
from .harness import Closed, Guest, Refused, Stream, new_id, wait_for

SCRIPTS = [
    "true",
    "exit 3",
    "echo out; echo err >&2",
    "sleep 0.05",
    "sleep 60",
    "head -c 300000 /dev/zero",
    "cat",
    "yes",
    "sleep 60 & exit 0",
    "setsid sh -c 'sleep 60; echo late' & echo early",
    "kill -STOP $$",
    "kill -KILL $PPID; sleep 60",
    "kill -STOP $PPID; sleep 0.01",
    "exec >&-; exec 2>&-; sleep 0.02",
]


class Chaos:
    def __init__(self, guest: Guest, seed: int) -> None:
        self.guest = guest
        self.random = random.Random(seed)
        self.host = guest.connect()
        self.ids: list[str] = []

    def streams(self) -> list[Stream]:
        return [stream for stream in self.host.streams.values() if not stream.over]

    def step(self) -> None:
        acts = [self.start, self.start, self.attach, self.signal, self.forget, self.control]
        acts += [self.credit, self.write, self.let_go, self.take, self.take, self.ask]
        if self.random.random() < 0.02:
            self.host.close()
            self.host = self.guest.connect()
        self.random.choice(acts)()

    def start(self) -> None:
        if len(self.streams()) > 60:
            return self.signal_all()
        self.ids.append(new_id())
        options: dict[str, object] = {"id": self.ids[-1]}
        options["job"] = self.random.random() < 0.4
        options["stdin"] = self.random.random() < 0.5
        options["window"] = self.random.choice([0, 100, 5000, 262_144])
        options["lost_ms"] = self.random.choice([0, 10, 1000])
        if self.random.random() < 0.3:
            options["timeout_ms"] = self.random.choice([1, 5, 50])
        if self.random.random() < 0.3:
            options["pty"] = {"rows": 24, "cols": 80}
        if self.random.random() < 0.2:
            options["spool"] = self.random.choice([0, 10, 10_000])
        credit = self.random.random() < 0.7
        self.host.exec(self.random.choice(SCRIPTS), credit=credit, keep=False, **options)
        return None

    def signal_all(self) -> None:
        for stream in self.streams()[:20]:
            self.host.control(stream, kill=True)

    def attach(self) -> None:
        if self.ids:
            offset = self.random.choice([0, 3, 1000, 1 << 40])
            window = self.random.choice([0, 1000, 1 << 20])
            identity = self.random.choice(self.ids[-30:])
            self.host.open("attach", id=identity, out=offset, window=window, keep=False)

    def signal(self) -> None:
        if self.ids:
            hows: list[dict[str, Any]] = [{"signal": 15}, {"signal": 9}, {"signal": 19}]
            how = self.random.choice([*hows, {"kill": True}])
            self.host.open("signal", id=self.random.choice(self.ids[-30:]), **how)

    def forget(self) -> None:
        if self.ids:
            self.host.open("forget", id=self.random.choice(self.ids[-30:]))

    def chosen(self) -> Stream | None:
        return self.random.choice(self.streams() or [None])

    def control(self) -> None:
        if stream := self.chosen():
            what: list[dict[str, Any]] = [
                {"signal": 18},
                {"eof": True},
                {"rows": 5, "cols": 9},
                {"kill": True},
                {},
            ]
            self.host.control(stream, **self.random.choice(what))

    def credit(self) -> None:
        stream = self.chosen()
        if stream and stream.event("started"):
            self.host.grant(stream, self.random.choice([1, 2]), self.random.choice([1, 99, 70_000]))

    def write(self) -> None:
        if stream := self.chosen():
            size = min(stream.input_credit, self.random.choice([1, 5000, 65_536]))
            stream.input_credit -= size
            self.host.send(stream.id, 3, b"\0" + bytes(size))

    def let_go(self) -> None:
        stream = self.chosen()
        if stream and self.random.random() < 0.3:
            self.host.let_go(stream)

    def take(self) -> None:
        self.host.pump(lambda: False, self.random.choice([0.0, 0.001, 0.01]))

    def ask(self) -> None:
        self.host.open(self.random.choice(["ping", "list", "stats"]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("AGENTD_CHAOS_SEEDS", "3"))))
def test_chaos(boot: Boot, seed: int) -> None:
    guest = boot()
    chaos = Chaos(guest, seed)
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        with contextlib.suppress(Closed, ConnectionError, Refused):
            chaos.step()
            continue
        chaos.host.close()
        chaos.host = guest.connect()
    chaos.host.close()
    assert guest.alive
    host = guest.connect()
    for record in host.call("list")["procs"]:
        with contextlib.suppress(Refused):
            host.call("signal", id=record["id"], kill=True)
    assert host.output("echo fine") == "fine\n"
    # What is left is what was left in the background on purpose.
    assert wait_for(lambda: not any(p["running"] for p in host.call("list")["procs"]))
