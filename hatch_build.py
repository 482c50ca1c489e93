"""How wheels are made: hatchling, and both agentd binaries inside one `py3-none-any` wheel.

This file is two things that must agree, so they live together:

- the build backend, which is hatchling's except that building a real wheel asks for the C compiler
  (an editable install does not: a clone builds agentd for its own machine, see tools/bootstrap.py);
- hatchling's build hook, which compiles agentd and puts it among the package's data.

One wheel for every machine is right although it holds machine code: the binaries are the guest's,
data to the host's Python, and the host picks one by `platform.machine()`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling import build as _hatchling
from hatchling.build import build_editable, build_sdist, build_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import agentd_build  # noqa: E402

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

get_requires_for_build_sdist = _hatchling.get_requires_for_build_sdist
get_requires_for_build_editable = _hatchling.get_requires_for_build_editable


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """hatchling's own needs and the pinned compiler."""
    needs = _hatchling.get_requires_for_build_wheel(config_settings)
    return [*needs, agentd_build.ZIG_REQUIREMENT]


class AgentdBuildHook(BuildHookInterface[Any]):
    """Compiles agentd for every architecture and adds it to the wheel, mode 0755."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="agentkernel-wheel-")
        for arch in agentd_build.ARCHITECTURES:
            binary = Path(self._scratch.name) / arch / "agentd"
            agentd_build.build(binary, compiler="zig", arch=arch, sources=ROOT / "agentd" / "src")
            build_data["force_include"][str(binary)] = f"agentkernel/_agentd/{arch}/agentd"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._scratch.cleanup()
