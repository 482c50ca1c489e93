"""Sandboxes that live as long as the process that made them: no state, no daemon, no lock.

    async with Runs() as runs:
        sandbox = await runs.create(SandboxSpec())
        result = await runs.run(sandbox, ["python3", "-c", "print(6*7)"])

Many processes may do this side by side. What a killed one leaves is removed by the next. They have
no gateway, so no network: one that is asked for is refused, and what holds instead is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from agentkernel.backends.base import Progress, Sandbox
from agentkernel.backends.registry import Backends
from agentkernel.errors import UnsupportedError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.commands import ExecResult, run_command
from agentkernel.kernel.image_use import StoredImages, with_image
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.kernel.state import state_directory
from agentkernel.kernel.template_model import applied
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.network.policy.presets import NONE
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.security.profiles import security_profile

NO_GATEWAY = "a sandbox without a daemon has no gateway"


class Runs:
    """See the module."""

    def __init__(self, state_dir: Path | None = None) -> None:
        self.state_dir = state_dir or state_directory()
        self.backends = Backends(self.state_dir)
        self.images = StoredImages(self.state_dir)
        self._sandboxes: dict[str, Sandbox] = {}

    async def __aenter__(self) -> Runs:
        await self.backends.collect_garbage()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox in list(self._sandboxes.values()):
            await self.destroy(sandbox)

    async def create(
        self, spec: SandboxSpec, progress: Progress | None = None, *, way_out: bool = False
    ) -> Sandbox:
        """`way_out`: with the rules and sockets of a network that nobody serves, to find out
        whether the machine can. Raises NetworkUnavailableError where it can't."""
        spec = applied(spec)
        _check_needs_no_daemon(spec)
        backend = self.backends[spec.backend]
        blueprint = expand(spec, owned=True)
        blueprint = await with_image(blueprint, spec, self.images, self.state_dir, progress)
        if way_out:
            blueprint = msgspec.structs.replace(blueprint, network=NetworkSetup())
        elif spec.network is None and security_profile(spec.profile).network:
            blueprint = msgspec.structs.replace(blueprint, without_network=NO_GATEWAY)
        sandbox = await backend.create(blueprint, progress)
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    async def destroy(self, sandbox: Sandbox) -> None:
        await sandbox.destroy()
        self._sandboxes.pop(sandbox.id, None)

    async def run(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        options: ProcessOptions | None = None,
        *,
        stdin: bytes = b"",
        output_bytes: int | None = None,
    ) -> ExecResult:
        """A command to its end, with what it wrote; see `run_command`."""
        return await run_command(sandbox, argv, options, stdin=stdin, output_bytes=output_bytes)


def _check_needs_no_daemon(spec: SandboxSpec) -> None:
    """No silent fallback for what was asked for by name."""
    wanted = {
        "a network needs": spec.network is not None and not _is_none(spec.network),
        "secrets need": bool(spec.secrets),
        "published ports need": bool(spec.ports),
        "volumes need": bool(spec.volumes),
        "a branch needs": spec.workspace_branch is not None,
    }
    for words, is_wanted in wanted.items():
        if is_wanted:
            raise UnsupportedError(
                f"{words} a daemon, and this sandbox has none",
                hint="make it by way of the daemon (`agentkernel run`, `sandbox create`), or leave "
                "that out",
            )


def _is_none(request: NetworkRequest) -> bool:
    """True if it asks for nothing by name."""
    return request.presets in ([], [NONE]) and not (
        request.allow or request.rules or request.phases
    )
