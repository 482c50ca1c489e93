"""agentkernel: the place where AI agents run code.

The public door. Names are loaded when they are first used, so that importing the package costs
nothing on the paths that need little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from agentkernel.client._async.sandbox import AsyncSandbox
    from agentkernel.client._sync.sandbox import Sandbox
    from agentkernel.client.results import CommandResult
    from agentkernel.errors import AgentKernelError
    from agentkernel.guest.processes import ExitStatus, ProcessOptions
    from agentkernel.kernel.commands import ExecResult
    from agentkernel.kernel.kernel import Kernel
    from agentkernel.kernel.runs import Runs
    from agentkernel.kernel.spec import SandboxSpec
    from agentkernel.outcomes import Outcome

_HOMES = {
    "AgentKernelError": "agentkernel.errors",
    "AsyncSandbox": "agentkernel.client._async.sandbox",
    "CommandResult": "agentkernel.client.results",
    "ExecResult": "agentkernel.kernel.commands",
    "ExitStatus": "agentkernel.guest.processes",
    "Kernel": "agentkernel.kernel.kernel",
    "Outcome": "agentkernel.outcomes",
    "ProcessOptions": "agentkernel.guest.processes",
    "Runs": "agentkernel.kernel.runs",
    "Sandbox": "agentkernel.client._sync.sandbox",
    "SandboxSpec": "agentkernel.kernel.spec",
}

__all__ = [
    "AgentKernelError",
    "AsyncSandbox",
    "CommandResult",
    "ExecResult",
    "ExitStatus",
    "Kernel",
    "Outcome",
    "ProcessOptions",
    "Runs",
    "Sandbox",
    "SandboxSpec",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkernel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
