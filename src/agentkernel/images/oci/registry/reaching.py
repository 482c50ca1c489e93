"""Whether an image can be fetched now: asked once, briefly, so that nobody waits for a network that
is not there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

from agentkernel.errors import AgentKernelError, NotFoundError, RegistryDeniedError
from agentkernel.images.oci.reference import Reference
from agentkernel.images.oci.registry.client import RegistryClient
from agentkernel.images.oci.registry.hosts import endpoints
from agentkernel.images.oci.registry.settings import Pace, RegistrySettings

REACH_SECONDS = 3.0
# So long a registry that did not answer is not asked again: whoever works offline should not wait
# for it at every command.
FORGET_SECONDS = 120.0


class Reaching:
    """Asks, and remembers which registries gave no answer, with the settings they were asked by."""

    def __init__(self) -> None:
        self._silent: dict[tuple[str, str], float] = {}

    async def ask(self, reference: Reference, settings: RegistrySettings) -> bool:
        """As `in_reach`."""
        key = (reference.registry, repr(settings))
        if self._silent.get(key, 0.0) > time.monotonic():
            return False
        self._silent.pop(key, None)
        answered, has_it = await in_reach(reference, settings)
        if not answered:
            self._silent = {key: time.monotonic() + FORGET_SECONDS}
        return has_it


async def in_reach(
    reference: Reference, settings: RegistrySettings, *, seconds: float = REACH_SECONDS
) -> tuple[bool, bool]:
    """Whether a registry answers, and whether with the manifest. Raises InvalidInputError for what
    is no registry's name."""
    brief = replace(settings, pace=Pace(connect=seconds, stall=seconds, tries=1))
    asked = endpoints(reference, brief)
    what = f"image {reference.familiar}"
    answered = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for endpoint in asked:
                try:
                    async with RegistryClient(endpoint, brief) as client:
                        await client.document(reference.digest or reference.tag, what=what)
                        return True, True
                except (NotFoundError, RegistryDeniedError):
                    answered = True
                except AgentKernelError:
                    pass
    return answered, False
