"""Where things are on this machine. Light: the command line pays for every import."""

from __future__ import annotations

import os

from agentkernel.errors import HostError

SOCKET_NAME = "api.sock"
_HINT = "set AGENTKERNEL_STATE_DIR to a directory of yours"


def state_path() -> str:
    """`AGENTKERNEL_STATE_DIR`, else the XDG state directory; it may not be there yet."""
    if chosen := os.environ.get("AGENTKERNEL_STATE_DIR"):
        return os.path.abspath(chosen)
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return os.path.join(os.path.abspath(xdg), "agentkernel")
    home = os.environ.get("HOME") or os.path.expanduser("~")
    if home in ("", "/", "~") and os.getuid() == 0:
        return "/var/lib/agentkernel/state"
    return os.path.join(home, ".local", "state", "agentkernel")


def make_state_directory(path: str | None = None) -> str:
    """The state directory, made, private, ours; or HostError."""
    path = path or state_path()
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        info = os.stat(path)
    except OSError as exc:
        raise HostError(
            f"the state directory can't be made: {path}: {exc.strerror}", hint=_HINT
        ) from None
    if info.st_uid != os.getuid():
        raise HostError(f"the state directory belongs to another user: {path}", hint=_HINT)
    if info.st_mode & 0o077:
        # A guest's setuid files are real files in there: nobody else may reach them.
        os.chmod(path, 0o700)
    return path
