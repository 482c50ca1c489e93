"""Every engine against every case of the conformance suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentkernel.backends.registry import backend_names
from agentkernel.conformance import CASES, Bench, Case, NotHere
from agentkernel.errors import HostError

MUST_WORK = frozenset(filter(None, os.environ.get("MUST_WORK", "").split(",")))
_unusable: dict[str, str] = {}


@pytest.fixture(scope="module")
def conformance_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture
async def bench(request: pytest.FixtureRequest, conformance_state: Path) -> Bench:
    """Of an engine that makes sandboxes here; else the test is skipped with the reason, or fails
    where MUST_WORK names the engine."""
    name = request.param
    bench = Bench(name, conformance_state)
    if name not in _unusable:
        try:
            async with bench.sandbox():
                _unusable[name] = ""
        except HostError as exc:
            _unusable[name] = exc.message
    if reason := _unusable[name]:
        if name in MUST_WORK:
            pytest.fail(f"{name} must work here: {reason}")
        pytest.skip(f"{name}: {reason}")
    return bench


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("bench", backend_names(), indirect=True)
async def test_conformance(bench: Bench, case: Case) -> None:
    try:
        await case.run(bench)
    except NotHere as reason:
        pytest.skip(f"{bench.name}: {reason}")


def test_every_case_says_what_it_is() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.about for case in CASES)
