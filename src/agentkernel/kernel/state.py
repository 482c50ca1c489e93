"""Where state lives."""

from __future__ import annotations

from pathlib import Path

from agentkernel.places import make_state_directory


def state_directory() -> Path:
    """`AGENTKERNEL_STATE_DIR`, else the XDG state directory; made, private, ours."""
    return Path(make_state_directory())
