"""agentd is built by whatever compiler a machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_the_system_compiler_takes_the_sources_as_musl_does(tmp_path: Path) -> None:
    """Its C library's headers are others: what they have must not be defined again."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no gcc and no cc here: there it is ziglang that compiles")
    sources = sorted((ROOT / "agentd" / "src").glob("*.c"))
    done = subprocess.run(
        [compiler, "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *sources],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
