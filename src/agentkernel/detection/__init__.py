"""Which runtime a command and a project want, in which version, and which image has it.

Nothing here runs anything of a project: files are read, small and without following links, and
what they ask for becomes an image of a closed list (`tables`). `quick` is what every `run` pays
for; `detecting` reads the project, `host` looks at this machine, `choosing` decides.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

    from agentkernel.detection.choosing import Choice, choose
    from agentkernel.detection.detecting import Detection, detect

_HOMES = {
    "Choice": "choosing",
    "Detection": "detecting",
    "choose": "choosing",
    "detect": "detecting",
}
__all__ = ["Choice", "Detection", "choose", "detect"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentkernel.detection' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"agentkernel.detection.{_HOMES[name]}"), name)
