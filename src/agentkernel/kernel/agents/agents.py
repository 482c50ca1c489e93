"""All that is known of agents: `kernel.agents`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.audit.trail import Trail
from agentkernel.config.finding import user_file
from agentkernel.kernel.agents.kit_records import ChosenDefinitions, Versions
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.sessions import Sessions

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel


class Agents:
    """Its parts."""

    def __init__(self, kernel: Kernel, trail: Trail) -> None:
        own, kept = Path(user_file()).parent / "agents", kernel.state_dir / "agents"
        self.definitions = ChosenDefinitions(own, Versions(kept))
        self.kits = Kits(kernel, trail, self.definitions)
        self.logins = Logins()
        self.sessions = Sessions(self.definitions, self.kits, self.logins)
