"""Buckets: a burst, then a rate; and never more of them than there may be."""

from __future__ import annotations

import pytest

from agentkernel.server.rates import Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    rates = Rates(3, 2.0, 10, clock=clock)
    assert [rates.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.take("a") == pytest.approx(0.5)
    assert rates.take("b") == 0.0, "each has its own"
    clock.now += 0.5
    assert rates.take("a") == 0.0
    assert rates.take("a") > 0
    clock.now += 3600
    assert [rates.take("a") > 0 for _ in range(5)] == [False, False, False, True, True]


def test_asking_in_vain_costs_nothing() -> None:
    clock = Clock()
    rates = Rates(1, 1.0, 10, clock=clock)
    assert rates.take("a") == 0.0
    for _ in range(1000):
        assert rates.take("a") > 0
    clock.now += 1.0
    assert rates.take("a") == 0.0


def test_a_clock_that_stands_still_gives_nothing() -> None:
    rates = Rates(1, 1000.0, 10, clock=Clock())
    assert rates.take("a") == 0.0
    assert rates.take("a") > 0


def test_the_quietest_is_forgotten() -> None:
    clock = Clock()
    rates = Rates(1, 0.001, 3, clock=clock)
    for key in "abc":
        assert rates.take(key) == 0.0
    assert rates.take("a") > 0
    assert rates.take("d") == 0.0
    assert len(rates) == 3
    assert rates.take("a") > 0, "it was heard of lately"
    assert rates.take("b") == 0.0, "it was not"
    for number in range(10_000):
        rates.take(str(number))
    assert len(rates) == 3
