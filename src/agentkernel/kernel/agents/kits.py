"""Kits: agents as they are installed, once, for all of their sandboxes: `kernel.agents.kits`."""

from __future__ import annotations

from typing import Final

from agentkernel.agents.definition import AgentDefinition
from agentkernel.backends.base import Progress, VolumeMount

KITS: Final = "/opt/agentkernel"
"""Where kits are inside: below their agents' names."""


class Kits:
    """See the module."""

    async def ready(
        self, definition: AgentDefinition, *, progress: Progress | None = None
    ) -> VolumeMount:
        """Its kit, read-only; made now if it is not there yet."""
        raise NotImplementedError
