"""The real agents from their registries, installed once and kept."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...conftest import MUST_WORK
from ..scripted import ScriptedModels
from .lab import AGENTS, Lab

_PLACE = "AGENT_TESTS_PLACE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test installs the agents."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModels]:
    models = ScriptedModels(tmp_path_factory.mktemp("models"))
    yield models
    models.close()


@pytest.fixture(scope="session")
def installed(models: ScriptedModels) -> Iterator[Lab]:
    """All agents, as `agent install` makes them, in a place that stays."""
    if "agents" not in MUST_WORK and _PLACE not in os.environ:
        pytest.skip(f"five agents, 2 GB from registries: MUST_WORK=agents or {_PLACE}=DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get(_PLACE) or cache / "agentkernel-tests" / "agents")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lab = Lab(place, models)
        lab.start()
        models.forward = lambda host: True  # the sandboxes of an installation reach registries only
        problem = lab.install()
        models.forward = lambda host: False
        try:
            if problem and "agents" in MUST_WORK:
                pytest.fail(f"{', '.join(AGENTS)} must be installable here: {problem}")
            if problem:
                pytest.skip(f"agents can't be installed here: {problem}")
            lab.set_keys()
            yield lab
        finally:
            lab.remove_all()
            if lab.alive():
                assert lab.terminate() == 0
            log = lab.log()
            lab.close()
        assert "Traceback" not in log, log


@pytest.fixture
def lab(installed: Lab, models: ScriptedModels) -> Iterator[Lab]:
    """Nobody's requests before, and nobody's sandboxes after."""
    models.requests.clear()
    models.refused.clear()
    models.play()
    yield installed
    installed.remove_all()
