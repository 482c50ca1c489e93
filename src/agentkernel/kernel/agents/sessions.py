"""Sessions: an agent at work in a sandbox, with what it said and did: `kernel.agents.sessions`."""

from __future__ import annotations

from agentkernel.agents.reading import Definitions
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.logins import Logins


class Sessions:
    """See the module."""

    def __init__(self, definitions: Definitions, kits: Kits, logins: Logins) -> None:
        self._definitions = definitions
        self._kits = kits
        self._logins = logins
