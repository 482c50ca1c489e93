"""A made-up machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from .machines import FakeMachine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path / "machine")
