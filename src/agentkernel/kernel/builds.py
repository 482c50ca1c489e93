"""Images from Dockerfiles, or from steps that a program has made: `kernel.builds`.

A step's command runs in a sandbox like any other: same isolation, limits and network policy. What
must hold: an image gets its names when all of it is there; of a build that fails, is cancelled or
is cut off by a crash no sandbox is left, and no more than layers that the next one may use.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

from agentkernel import faults
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.local.shortages import host_errors
from agentkernel.errors import InvalidInputError, ResourceExhaustedError
from agentkernel.ids import new_id
from agentkernel.images.building.context import Context
from agentkernel.images.dockerfile.model import Build
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.work import LayerWorker
from agentkernel.kernel.building.model import BuildRequest, Built, Report
from agentkernel.kernel.image_holds import holding_images
from agentkernel.kernel.threads import block_in_threads, in_thread
from agentkernel.network.policy.request import expand_network
from agentkernel.space import Watched

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

# What a machine of a few cores can do at once without each taking for ever.
MAX_BUILDS = 8


class Builds:
    """See the module."""

    def __init__(self, kernel: Kernel, trail: Trail, worker: LayerWorker) -> None:
        self._kernel = kernel
        self.trail = trail
        self._worker = worker
        self._running = 0

    @contextlib.contextmanager
    def context(self) -> Iterator[Context]:
        """A place for a context, as long as the block lasts. Its file has no name: whatever ends
        this process, nothing is left of it."""
        directory = self._kernel.state_dir / "images"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            yield Context(cast(BinaryIO, file), space=Watched(directory))

    @audited("image.build")
    @holding_images
    async def build(
        self,
        steps: Build,
        context: Context,
        wanted: BuildRequest,
        *,
        report: Report,
        owner: str = "local",
    ) -> Built:
        """Raises ImageBuildError for a step that fails, InvalidInputError, UnsupportedError for
        what is asked for, RegistryError where an image can't be fetched."""
        from agentkernel.kernel.building.executing import Execution

        names = [_new_name(tag) for tag in wanted.tags]
        # Raises for what no sandbox can have, before the first step.
        expand_network(wanted.network, wanted.profile, ())
        self.trail.found(None, None)
        if self._running >= MAX_BUILDS:
            raise ResourceExhaustedError(
                f"{MAX_BUILDS} images are being built", hint="wait until one is done"
            )
        began = time.monotonic()
        store = self._kernel.images.store
        self._running += 1
        try:
            with host_errors("building the image"):
                async with block_in_threads(store.adding()):
                    execution = Execution(
                        self._kernel, self._worker, new_id(), steps, context, wanted, report, owner
                    )
                    state = await execution.run()
                    digest = await in_thread(state.write, store)
                    faults.point("build.image")
                    for name in names:
                        await in_thread(store.tag, name, digest)
                    faults.point("build.named")
        finally:
            self._running -= 1
        image = await in_thread(store.image, digest)
        return Built(
            digest=digest,
            id=image.id,
            names=[parse_reference(name).familiar for name in names],
            layers=execution.layers,
            cached=execution.cached,
            seconds=round(time.monotonic() - began, 3),
            notes=execution.notes,
        )


def _new_name(text: str) -> str:
    reference = parse_reference(text)
    if reference.digest:
        raise InvalidInputError(
            f"{text[:200]!r} can't be a new name of an image", hint="write NAME[:TAG]"
        )
    return reference.name
