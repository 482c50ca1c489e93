"""The variables that say where toolchains are: both ends know the same."""

from __future__ import annotations

import pytest

from agentkernel.client.toolchains import NAMES, host_environment
from agentkernel.images.layouts import LAYOUTS, PATH_VARIABLES, VERSION_VARIABLES


def test_the_client_sends_what_images_look_at() -> None:
    relocating = {layout.variable for layout in LAYOUTS if layout.variable}
    assert set(NAMES) == {"PATH", *relocating, *PATH_VARIABLES, *VERSION_VARIABLES}


def test_only_that_and_only_text_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SECRET_MARKER", "hunter2")
    monkeypatch.setenv("PATH", "/usr/bin:/odd/\udcff:/bin")
    assert host_environment() == {"PATH": "/usr/bin:/bin"}
