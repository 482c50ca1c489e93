"""What a sandbox takes of a stored image when it is made: which one for ever, and as whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from agentkernel.backends.base import Blueprint, Progress
from agentkernel.errors import InvalidInputError
from agentkernel.images.model import RootFilesystem, image_kind
from agentkernel.images.oci.rootfs import pin
from agentkernel.images.oci.store import ImageStore
from agentkernel.kernel.spec import SandboxSpec

Pull = Literal["missing", "always", "never"]


class Ready(Protocol):
    """Whoever can have an image here."""

    async def ready(
        self, reference: str, *, pull: Pull = "missing", progress: Progress | None = None
    ) -> str:
        """The pinned reference of an image that is stored now. Raises NotFoundError,
        ImageInvalidError, RegistryError, InvalidInputError."""


class StoredImages:
    """Images that are here already: without a daemon nothing is fetched."""

    def __init__(self, state_dir: Path) -> None:
        self._store = ImageStore(state_dir / "images")

    async def ready(
        self, reference: str, *, pull: Pull = "missing", progress: Progress | None = None
    ) -> str:
        if pull == "always":
            raise InvalidInputError(
                "without a daemon no image is pulled",
                hint=f"pull it first: agentkernel image pull {reference}",
            )
        return await asyncio.to_thread(self._pinned, reference)

    def _pinned(self, reference: str) -> str:
        return pin(reference, self._store.find(reference))


async def with_image(
    blueprint: Blueprint,
    spec: SandboxSpec,
    images: Ready,
    state_dir: Path,
    progress: Progress | None = None,
) -> Blueprint:
    """The blueprint of a sandbox of a stored image; another one is left as it is."""
    if image_kind(spec.image) != "oci":
        if spec.entrypoint is not None:
            raise InvalidInputError(
                "an entrypoint is for images that have one", hint="leave --entrypoint out"
            )
        return blueprint
    pinned = await images.ready(spec.image, pull=spec.pull, progress=progress)
    user = spec.user
    if user is None:
        stored = await asyncio.to_thread(ImageStore(state_dir / "images").find, pinned)
        user = stored.config.process.user or "root"
    return msgspec.structs.replace(blueprint, image=pinned, user=user)


def first_command(
    blueprint: Blueprint, root: RootFilesystem, argv: Sequence[str] | None, shell: str | None
) -> list[str]:
    """What `run` starts in a sandbox of its own: the image's entrypoint with the caller's words, or
    with its own command. What is for a shell is for a shell, whatever the entrypoint."""
    if shell is not None:
        return ["sh", "-c", shell]
    entrypoint = list(root.entrypoint if blueprint.entrypoint is None else blueprint.entrypoint)
    # An entrypoint of the caller's takes the image's command away, as everywhere.
    own = root.cmd if blueprint.entrypoint is None else ()
    words = [*entrypoint, *(argv or own)]
    if not words:
        raise InvalidInputError(
            "no command given, and the image has none of its own",
            hint="agentkernel run --image IMAGE -- CMD ARGS…",
        )
    return words
