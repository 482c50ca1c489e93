"""Where a workspace is inside: at /workspace, at the path that it has on the host, or elsewhere.

Whatever the path, no link of an image leads the mount away: the launcher follows none.
"""

from __future__ import annotations

from agentkernel.errors import InvalidInputError
from agentkernel.workspaces.model import TARGET

SAME = "same"
BORROWED_OBJECTS = "/var/lib/agentkernel/objects"
"""Where git's objects are that a branch's own checkout borrows, if the workspace covers their own
path."""

_MOST_PATH = 1024
_MOST_NAME = 255
_HINT = "choose a directory of its own, or leave it at /workspace"
# Whole trees that programs, the kernel or we ourselves need as they are.
_NOT_BELOW = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/agentkernel",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/agentkernel",
)
# In there, people put sources of their own.
_STILL_BELOW = ("/usr/src", "/usr/local/src")
# What is in these is not the project's alone.
_NOT_AT = ("/home", "/opt", "/root", "/tmp", "/var", "/var/lib", "/var/tmp")


def workspace_target(wanted: str | None, path: str) -> str:
    """Where the directory `path` of the host is to be. Raises InvalidInputError: what can't be is
    refused, and never quietly put elsewhere."""
    if wanted is None:
        return TARGET
    is_same = wanted == SAME
    target = path if is_same else wanted
    parts = target.split("/")[1:]
    if not target.startswith("/") or len(target) > _MOST_PATH:
        raise InvalidInputError(
            f"a workspace can't be at {target[:64]!a}: not an absolute path",
            hint=f'write "{SAME}", for its path on this machine, or an absolute path',
        )
    if not target.isprintable() or any(
        part in (".", "..") or len(part.encode("utf-8", "replace")) > _MOST_NAME for part in parts
    ):
        raise InvalidInputError(
            f"a workspace can't be at {target[:64]!a}: no plain path", hint=_HINT
        )
    clean = "/" + "/".join(part for part in parts if part)
    if clean == "/" or clean in _NOT_AT or (_is_in(clean, _NOT_BELOW) and not _is_source(clean)):
        what = "its path on this machine is one that" if is_same else "that is a place which"
        raise InvalidInputError(
            f"a workspace can't be at {clean}: {what} the sandbox itself needs", hint=_HINT
        )
    return clean


def _is_source(path: str) -> bool:
    return path not in _STILL_BELOW and _is_in(path, _STILL_BELOW)


def _is_in(path: str, directories: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in directories)
