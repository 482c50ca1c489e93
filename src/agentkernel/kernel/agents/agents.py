"""All that is known of agents: `kernel.agents`."""

from __future__ import annotations

from pathlib import Path

from agentkernel.agents.reading import Definitions
from agentkernel.config.finding import user_file
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.agents.sessions import Sessions


class Agents:
    """Its parts."""

    def __init__(self) -> None:
        self.definitions = Definitions(Path(user_file()).parent / "agents")
        self.kits = Kits()
        self.logins = Logins()
        self.sessions = Sessions(self.definitions, self.kits, self.logins)
