"""Events on their way: counted together, few enough, none lost without a number."""

from __future__ import annotations

import time

import pytest

from agentkernel.network.gateway import outbox as module
from agentkernel.network.gateway.messages import NetworkEvent
from agentkernel.network.gateway.outbox import Outbox

from .gateway_lab import until


def event(host: str, sandbox: str = "one") -> NetworkEvent:
    return NetworkEvent(at=time.time(), sandbox=sandbox, kind="network.deny", via="tcp", host=host)


def drain(outbox: Outbox) -> tuple[list[NetworkEvent], int]:
    found: list[NetworkEvent] = []
    dropped = 0
    while batch := outbox.pull():
        found.extend(batch.events)
        dropped += batch.dropped
    return found, dropped


async def test_the_same_within_a_second_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAME_SECONDS", 0.2)
    outbox = Outbox()
    for _ in range(50):
        outbox.add(event("a"))
    outbox.add(event("b"))
    first, _ = drain(outbox)
    assert [(e.host, e.times) for e in first] == [("a", 1), ("b", 1)]
    later = await until(lambda: drain(outbox)[0])
    assert [(e.host, e.times) for e in later] == [("a", 49)]
    outbox.add(event("a"))
    assert [(e.host, e.times) for e in drain(outbox)[0]] == [("a", 1)]


async def test_a_sandbox_that_floods_has_its_events_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SAME_SECONDS", 0.2)
    outbox = Outbox()
    for number in range(5000):
        outbox.add(event(str(number)))
    outbox.add(event("quiet", "two"))
    found, dropped = drain(outbox)
    assert dropped == 0 and found[-1].sandbox == "two"
    assert len(found) < 1000
    told = sum(e.times for e in found)
    while told < 5001:
        more = await until(lambda: drain(outbox)[0])
        assert {(e.kind, e.sandbox) for e in more} == {("network.limit", "one")}
        told += sum(e.times for e in more)
    assert told == 5001


async def test_while_nobody_listens_the_newest_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RATE_OF_ONE", 1e9)
    monkeypatch.setattr(module, "BURST_OF_ONE", 1e9)
    outbox = Outbox()
    for sandbox in range(6):
        for number in range(3000):
            outbox.add(event(str(number), str(sandbox)))
    found, dropped = drain(outbox)
    assert len(found) == module.ROOM and len(found) + dropped == 18000
    assert sum(e.sandbox == "0" for e in found) == module.ROOM_OF_ONE


async def test_a_batch_that_was_not_sent_is_sent_again() -> None:
    outbox = Outbox()
    for host in "abc":
        outbox.add(event(host))
    batch = outbox.pull()
    assert batch is not None
    outbox.put_back(batch)
    assert [e.host for e in drain(outbox)[0]] == ["a", "b", "c"]
    assert not outbox.filled.is_set()
