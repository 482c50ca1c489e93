"""Volumes of a sandbox as people write them.

cache:/var/cache        the volume `cache` at /var/cache
models:/models:ro       read-only
"""

from __future__ import annotations

from agentkernel.errors import InvalidInputError
from agentkernel.ids import check_name

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

_HINT: Final = "write NAME:/path or NAME:/path:ro"
_MODES: Final = {"ro": True, "rw": False}
_PATH_MAX: Final = 1024
# The kernel's own, which no file of anybody's may stand in for.
_NOT_BELOW: Final = ("/proc", "/dev", "/sys", "/run/agentkernel")
# Without them nothing starts inside.
_NOT_AT: Final = (
    "/",
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run",
    "/sbin",
    "/usr",
)


class VolumeRequest:
    """A volume by its name, and where the sandbox has it."""

    __slots__ = ("name", "path", "read_only")

    def __init__(self, name: str, path: str, read_only: bool) -> None:
        self.name = name
        self.path = path
        self.read_only = read_only


def parse_volume(text: str) -> VolumeRequest:
    """Raises InvalidInputError."""
    name, colon, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not colon or mode not in ("", *_MODES) or rest.endswith(":"):
        raise InvalidInputError(f"{text[:64]!r} is not a volume and its place", hint=_HINT)
    if name.startswith(("/", ".", "~")):
        raise InvalidInputError(
            f"{name[:64]!r} is a path of this machine, not the name of a volume",
            hint="a directory of yours is a workspace: --workspace DIR",
        )
    return VolumeRequest(check_name(name, "volume"), _path(path, text), _MODES.get(mode, False))


def parse_volumes(texts: Sequence[str], *, workspace: str | None) -> list[VolumeRequest]:
    """All of a sandbox, those that stand in another's way refused. `workspace`: where its own is.
    Raises InvalidInputError."""
    found = [parse_volume(text) for text in texts]
    for number, one in enumerate(found):
        if workspace is not None and is_below(f"{workspace}/", one.path):
            raise InvalidInputError(
                f"the volume {one.name} would cover the workspace",
                hint=f"put it below {workspace}, or leave the workspace out: --workspace none",
            )
        for other in found[:number]:
            if one.name == other.name:
                raise InvalidInputError(f"the volume {one.name} has two places")
            if one.path == other.path:
                raise InvalidInputError(f"two volumes can't both be at {one.path}")
            if is_below(one.path, other.path) or is_below(other.path, one.path):
                raise InvalidInputError(
                    f"the volumes {other.name} and {one.name} are one in the other",
                    hint="give them places beside each other",
                )
    return found


def is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _path(path: str, text: str) -> str:
    parts = path.split("/")[1:]
    if not path.startswith("/") or len(path) > _PATH_MAX:
        raise InvalidInputError(f"{text[:64]!r}: the path must begin with /", hint=_HINT)
    if not path.isprintable() or any(part in (".", "..") or len(part) > 255 for part in parts):
        raise InvalidInputError(f"{text[:64]!r}: the path is no plain path", hint=_HINT)
    clean = "/" + "/".join(part for part in parts if part)
    if clean in _NOT_AT or clean in _NOT_BELOW or any(is_below(clean, top) for top in _NOT_BELOW):
        raise InvalidInputError(
            f"no volume can be at {clean}, which the sandbox itself needs",
            hint="choose a directory of its own, such as /data",
        )
    return clean
