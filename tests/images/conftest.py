"""What the tests of pulling share: a store, a home without logins, no waiting between tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkernel.images.oci.registry.settings import Pace, RegistrySettings
from agentkernel.images.oci.store import ImageStore

QUICK = RegistrySettings(pace=Pace(connect=5, stall=5, pause=0.001, longest_pause=2, tries=4))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logins and proxies of whoever runs the tests are not the tests'."""
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home
