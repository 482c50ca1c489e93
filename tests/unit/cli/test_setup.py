"""`setup --check BACKEND`: the suite's results as people and programs get them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.cli import setup
from agentkernel.conformance import Bench, Case, Failed, NotHere, suite
from agentkernel.kernel.checks import Check

Examine = Callable[..., tuple[int, str]]


async def good(bench: Bench) -> None:
    assert bench.state_dir.is_dir()


async def bad(bench: Bench) -> None:
    raise Failed("it did not")


async def odd(bench: Bench) -> None:
    raise ZeroDivisionError("of its own")


async def elsewhere(bench: Bench) -> None:
    raise NotHere("no such thing on this machine")


@pytest.fixture
def check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Examine:
    """Runs the command over some cases; gives its status and output."""
    monkeypatch.setenv("AGENTKERNEL_STATE_DIR", str(tmp_path))

    def call(
        *functions: Callable[[Bench], Awaitable[None]], works: bool = True, as_json: bool = False
    ) -> tuple[int, str]:
        async def checks(only: str | None = None) -> list[Check]:
            tried = Check(
                backend="runc", found=True, works=works, supported=True, tried="t", detail="d"
            )
            return [tried]

        cases = tuple(Case(f.__name__, "about", f) for f in functions)
        monkeypatch.setattr(setup, "check_backends", checks)
        monkeypatch.setattr(suite, "CASES", cases)
        status = setup.main(argparse.Namespace(check="runc", json=as_json))
        assert list(tmp_path.iterdir()) == [], "its state directory is gone"
        return status, capsys.readouterr().out

    return call


def test_all_good(check: Examine) -> None:
    status, output = check(good, elsewhere)
    assert status == 0
    assert "ok        good: about" in output
    assert "not here  elsewhere: about" in output
    assert "no such thing on this machine" in output


def test_a_failure_counts_and_the_others_still_run(check: Examine) -> None:
    status, output = check(bad, odd, good)
    assert status == 1
    assert "FAILED    bad: about" in output and "it did not" in output
    assert "ZeroDivisionError: of its own" in output
    assert "ok        good: about" in output


def test_what_does_not_work_is_not_examined(check: Examine) -> None:
    status, output = check(good, works=False)
    assert status == 1
    assert "good" not in output


def test_json(check: Examine) -> None:
    status, output = check(good, bad, as_json=True)
    assert status == 1
    (described,) = json.loads(output)
    assert [(c["name"], c["state"]) for c in described["conformance"]] == [
        ("good", "passed"),
        ("bad", "failed"),
    ]
