"""An agent's own login, run in a sandbox that is made for it alone: `kernel.agents.login_boxes`.

For as long as that sandbox lives the login is in it, which is said to whoever asks for it; so it
has nothing but the agent's kit and reaches nothing but the provider. Then the file is taken out,
and the sandbox is removed, whatever came of it. Nobody comes: it goes after half an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from agentkernel.agents.commands import Fill, environment, filled, home_path, path_entries
from agentkernel.agents.credentials import MOST_BYTES
from agentkernel.agents.reading import Definitions
from agentkernel.audit.trail import Trail, audited
from agentkernel.errors import (
    GuestFileError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from agentkernel.kernel.agents.kit_model import KITS
from agentkernel.kernel.agents.kits import Kits
from agentkernel.kernel.agents.login_model import LoginBox, LoginStatus
from agentkernel.kernel.agents.logins import Logins
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.network.secrets.store import Hidden

if TYPE_CHECKING:
    from agentkernel.kernel.kernel import Kernel

LABEL: Final = "agentkernel.login"
HOME: Final = "/root"
_SECONDS: Final = 1800.0
_WITH_PATH: Final = 'PATH="$0:$PATH" exec "$@"'


class LoginBoxes:
    """See the module."""

    def __init__(
        self, kernel: Kernel, trail: Trail, definitions: Definitions, kits: Kits, logins: Logins
    ) -> None:
        self._kernel = kernel
        self.trail = trail
        self._definitions = definitions
        self._kits = kits
        self._logins = logins

    @audited("agent.login_begin")
    async def open(
        self, agent: str, *, host_env: Mapping[str, str] | None = None, owner: str
    ) -> LoginBox:
        """A sandbox to run the agent's login in. Raises UnsupportedError, and what the making of
        its kit and of a sandbox raise."""
        definition = self._definitions.get(agent)
        login = definition.login
        if not login.command or login.oauth is None:
            keys = ", ".join(key.secret for key in login.keys)
            raise UnsupportedError(
                f"{definition.title} has no login that can be run in a sandbox",
                hint=f"give an API key ({keys}): `agentkernel agent login {agent} --api-key`"
                if keys
                else None,
            )
        self.trail.found(None, None)
        install = definition.install
        mounts = []
        if install.steps or install.node:  # else it is there without a kit
            mounts.append(await self._kits.ready(definition, host_env=host_env))
        spec = SandboxSpec(
            network=NetworkRequest(presets=[], allow=list(login.hosts)),
            ports=[f"{port}:{port}" for port in login.ports],
            host_env=dict(host_env or {}),
        )
        record = await self._kernel.create(
            spec,
            owner=owner,
            labels={LABEL: agent},
            ttl_seconds=_SECONDS,
            on_ttl="remove",
            mounts=mounts,
        )
        fill = Fill(kit=f"{KITS}/{agent}", version=definition.version, home=HOME, workspace=HOME)
        command = [filled(word, fill) for word in login.command]
        if entries := path_entries(definition, fill):
            command = ["sh", "-c", _WITH_PATH, ":".join(entries), *command]
        hosts = ", ".join(login.hosts)
        return LoginBox(
            sandbox=record.id,
            command=command,
            env=environment(definition, fill),
            warning=f"while you log in the login is inside the sandbox {record.id}, where "
            f"{definition.title} runs and {hosts} can be reached; afterwards it is kept outside, "
            "and that sandbox is removed",
            hint=login.hint,
        )

    @audited("agent.login_end")
    async def harvest(self, id: str, agent: str, *, owner: str) -> LoginStatus:
        """Takes the login out of its sandbox, which is removed. Raises NotFoundError: nobody has
        logged in there."""
        oauth = self._definitions.get(agent).login.oauth
        record = await self._kernel.get(id, owner=owner)
        if oauth is None or record.labels.get(LABEL) != agent:
            raise InvalidInputError(f"that is not a sandbox for a login with {agent}")
        self.trail.found(record.id, record.name)
        try:
            async with self._kernel.files(record.id, owner=owner) as files:
                content = await files.read(home_path(oauth.file, HOME), max_bytes=MOST_BYTES)
            return await self._logins.take(agent, Hidden(content), owner=owner)
        except GuestFileError as error:
            raise NotFoundError(
                f"there is no login: {agent} has written no {oauth.file}",
                hint=f"`agentkernel agent login {agent}` begins again",
                cause=error.code,
            ) from None
        finally:
            await self._kernel.remove(record.id, owner=owner)
