"""agentkernel: the place where AI agents run code.

The public door. Names are loaded when they are first used, so that importing the package costs
nothing on the paths that need little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from agentkernel.errors import AgentKernelError
    from agentkernel.guest.processes import ExitStatus, Outcome, ProcessOptions
    from agentkernel.kernel.commands import ExecResult
    from agentkernel.kernel.kernel import Kernel
    from agentkernel.kernel.runs import Runs
    from agentkernel.kernel.spec import SandboxSpec

_HOMES = {
    "AgentKernelError": "agentkernel.errors",
    "ExecResult": "agentkernel.kernel.commands",
    "ExitStatus": "agentkernel.guest.processes",
    "Kernel": "agentkernel.kernel.kernel",
    "Outcome": "agentkernel.guest.processes",
    "ProcessOptions": "agentkernel.guest.processes",
    "Runs": "agentkernel.kernel.runs",
    "SandboxSpec": "agentkernel.kernel.spec",
}

__all__ = [
    "AgentKernelError",
    "ExecResult",
    "ExitStatus",
    "Kernel",
    "Outcome",
    "ProcessOptions",
    "Runs",
    "SandboxSpec",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkernel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
