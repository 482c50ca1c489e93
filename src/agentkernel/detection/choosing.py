"""Which image a command gets when nobody names one.

This machine's own tools come first: they are there at once and work offline. An image comes next,
if it is here or in reach. What is left is this machine in spite of a version that differs, said, or
an error that says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkernel.detection.detecting import Detection
from agentkernel.detection.host import Found, Machine
from agentkernel.detection.tables import RUNTIMES
from agentkernel.errors import NotFoundError

HOST = "host"


@dataclass(frozen=True, slots=True)
class Choice:
    """`reason`: why this one, when `wanted` is wanted. `plain`: it needs not be said.
    `environment`: for the `host` image, what makes its tools choose the version."""

    image: str
    wanted: Detection
    reason: str
    plain: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def why(self) -> str:
        return f"{self.wanted.why}; {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        return {"image": self.image, "why": self.why, "detected": self.wanted.to_dict()}


def choose(
    wanted: Detection,
    machine: Machine,
    *,
    is_stored: Callable[[str], bool],
    is_reachable: Callable[[str], bool],
) -> Choice:
    """Raises NotFoundError if nothing here or in reach has what the command needs."""
    found = machine.look(wanted)
    wish = wanted.wish
    fits = wish is None or found.version is None or wish.allows(found.version)
    if not found.missing and fits:
        has = f"this machine has {_dotted(found) or 'it'}"
        return Choice(HOST, wanted, has, True, found.environment)
    lacks = _lacks(found)
    image = wanted.image if wanted.bundled else None
    if image is not None and (is_stored(image) or is_reachable(image)):
        return Choice(image, wanted, lacks)
    if not found.missing or (not wanted.certain and wanted.program not in found.missing):
        none = "there is no official image" if image is None else f"{image} is not in reach"
        return Choice(HOST, wanted, f"{lacks}, and {none}", environment=found.environment)
    if not wanted.bundled:
        # Neither has it; that it can't be started is the sandbox's to say, as of any program.
        return Choice(HOST, wanted, lacks, True)
    raise _nothing(wanted, found, image)


def _lacks(found: Found) -> str:
    if found.missing:
        return f"this machine has no {' and no '.join(found.missing)}"
    return f"this machine has {_dotted(found)}"


def _dotted(found: Found) -> str:
    return ".".join(map(str, found.version or ()))


def _nothing(wanted: Detection, found: Found, image: str | None) -> NotFoundError:
    kind = RUNTIMES[wanted.runtime]
    names = " and ".join(found.missing)
    package = f" (in Debian: apt-get install {kind.install})" if kind.install else ""
    if image is None:
        message = f"{names} is not on this machine, and {kind.label} has no official image"
        hint = f"install it{package}, or name an image that has it: --image IMAGE"
    else:
        message = (
            f"{names} is not on this machine, and the image {image} is neither here nor in reach"
        )
        hint = (
            f"install it{package}, or fetch the image where a registry is in reach: "
            f"`agentkernel image pull {image}`; --image names another, --image host tries anyway"
        )
    return NotFoundError(message, hint=hint, detected=wanted.to_dict(), missing=list(found.missing))
