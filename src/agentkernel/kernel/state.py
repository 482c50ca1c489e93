"""Where state lives."""

from __future__ import annotations

import os
from pathlib import Path

from agentkernel.errors import HostError


def state_directory() -> Path:
    """`AGENTKERNEL_STATE_DIR`, else the XDG state directory; made, private, ours."""
    path = _wanted()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as exc:
        raise HostError(
            f"the state directory can't be made: {path}: {exc.strerror}",
            hint="set AGENTKERNEL_STATE_DIR to a directory of yours",
        ) from None
    if info.st_uid != os.getuid():
        raise HostError(
            f"the state directory belongs to another user: {path}",
            hint="set AGENTKERNEL_STATE_DIR to a directory of yours",
        )
    if info.st_mode & 0o077:
        # A guest's setuid files are real files in there: nobody else may reach them.
        path.chmod(0o700)
    return path


def _wanted() -> Path:
    if chosen := os.environ.get("AGENTKERNEL_STATE_DIR"):
        return Path(chosen).absolute()
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return Path(xdg).absolute() / "agentkernel"
    home = os.environ.get("HOME") or os.path.expanduser("~")
    if home in ("", "/", "~") and os.getuid() == 0:
        return Path("/var/lib/agentkernel/state")
    return Path(home) / ".local" / "state" / "agentkernel"
