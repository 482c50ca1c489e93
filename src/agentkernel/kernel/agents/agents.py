"""All that is known of agents: `kernel.agents`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.backends.base import Progress
from agentkernel.config.finding import user_file
from agentkernel.kernel.agents.kit_records import ChosenDefinitions, Versions
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.login_boxes import LoginBoxes
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.preparing import Equipped, equip
from agentkernel.kernel.agents.sessions import Sessions
from agentkernel.kernel.spec import SandboxSpec

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

DIRECTORY = "agents"
"""Of the state directory, what is kept of agents: logins, sessions."""


class Agents:
    """Its parts. Preconditions: the kernel has its store, its trail and its secrets."""

    def __init__(self, kernel: Kernel) -> None:
        own, kept = Path(user_file()).parent / "agents", kernel.state_dir / DIRECTORY
        self.definitions = ChosenDefinitions(own, Versions(kept))
        self.kits = Kits(kernel, kernel.trail, self.definitions)
        self.logins = Logins(
            self.definitions,
            kernel.secrets,
            kernel._store,
            kernel.trail,
            kept,
            kernel.networks.operator,
        )
        self.login_boxes = LoginBoxes(
            kernel, kernel.trail, self.definitions, self.kits, self.logins
        )
        self.sessions = Sessions(kernel, self.definitions, kept / "sessions")

    async def equip(
        self, spec: SandboxSpec, *, owner: str, progress: Progress | None = None
    ) -> Equipped:
        """The spec of a sandbox with all that its `agents` need, and their kits."""
        return await equip(
            spec, self.definitions, self.kits, self.logins, owner=owner, progress=progress
        )
