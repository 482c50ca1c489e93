"""What people type, and what may be printed."""

from __future__ import annotations

import argparse

import pytest

from agentkernel.cli import values


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("2GiB", 2 << 30), ("1.5k", 1536), ("77", 77)],
)
def test_sizes(text: str, expected: int) -> None:
    assert values.size_value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("30", 30), ("90s", 90), ("5m", 300), ("1ms", 0.001)]
)
def test_durations(text: str, expected: float) -> None:
    assert values.duration(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "5 parsecs", "1e3", "0x10", "²", "9" * 400, "9" * 5000]
)
def test_nonsense(text: str) -> None:
    for parse in (values.size_value, values.duration):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


def test_a_time_of_nothing_or_of_ever_is_none() -> None:
    for text in ("0", "0.0s", "0." + "0" * 400 + "1", "32000000000"):
        with pytest.raises(argparse.ArgumentTypeError):
            values.duration(text)


def test_environment_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "yes")
    assert values.environment_entry("A=b=c") == ("A", "b=c")
    assert values.environment_entry("HERE") == ("HERE", "yes")
    for bad in ("=x", "NOT_SET_ANYWHERE"):
        with pytest.raises(argparse.ArgumentTypeError):
            values.environment_entry(bad)


def test_control_characters_never_reach_the_terminal() -> None:
    assert values.printable("a\x1b]52;c;x\x07\n\u202eb") == "a\ufffd]52;c;x\ufffd\ufffd\ufffdb"
