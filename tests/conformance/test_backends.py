"""Every engine against every case of the conformance suite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentkernel.backends.registry import backend_names
from agentkernel.conformance import CASES, Bench, Case, NotHere


@pytest.fixture(scope="module")
def conformance_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture
async def bench(
    request: pytest.FixtureRequest,
    conformance_state: Path,
    need_engine: Callable[[str], Awaitable[None]],
) -> Bench:
    await need_engine(request.param)
    return Bench(request.param, conformance_state)


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
