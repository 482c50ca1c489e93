"""From what was asked for to what a sandbox gets of a network: its setting, and what is inside."""

from __future__ import annotations

import os
from pathlib import Path

from agentkernel.backends.base import Sandbox
from agentkernel.guest.files import GuestFiles
from agentkernel.network.guest_files import network_setup
from agentkernel.network.intercept.authority import authority_pem
from agentkernel.network.policy.model import NetworkSetting, NetworkSetup
from agentkernel.network.policy.request import NetworkRequest, expand_network
from agentkernel.network.registries import MachineReader


class NetworkMaking:
    """Knows this machine's package registries and the authority of this state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._machine = MachineReader(os.environ, Path.home())

    def setting(self, request: NetworkRequest | None, profile: str) -> NetworkSetting:
        """Raises InvalidInputError."""
        return expand_network(request, profile, self._machine.read().rules)

    def setup(self, setting: NetworkSetting) -> NetworkSetup:
        return network_setup(self._machine.read(), setting, authority_pem(self._state_dir))

    async def tell_inside(self, sandbox: Sandbox, setup: NetworkSetup) -> None:
        """For a sandbox that was made without: its files, now. Variables and trust stores come with
        its next start."""
        files = GuestFiles(sandbox.channel)
        for path, text in setup.files.items():
            await files.write(path, text.encode(), parents=True)


def has_any(setting: NetworkSetting) -> bool:
    """Whether anything can ever be reached with it, in any phase."""
    return any(policy.rules for policy in setting.phases.values()) or bool(setting.secrets)
