"""agentkernel: the place where AI agents run code.

The public door. Names are loaded when they are first used, so that importing the package costs
nothing on the paths that need little of it.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any

    from agentkernel.client._async.host import AsyncHost
    from agentkernel.client._async.runs import run as arun
    from agentkernel.client._async.sandbox import AsyncSandbox
    from agentkernel.client._async.transport import AsyncTransport
    from agentkernel.client._sync.host import Host
    from agentkernel.client._sync.runs import run
    from agentkernel.client._sync.sandbox import Sandbox
    from agentkernel.client._sync.transport import Transport
    from agentkernel.client.results import CommandResult
    from agentkernel.client.template import Template
    from agentkernel.errors import AgentKernelError
    from agentkernel.guest.processes import ExitStatus, ProcessOptions
    from agentkernel.kernel.commands import ExecResult
    from agentkernel.kernel.kernel import Kernel
    from agentkernel.kernel.runs import Runs
    from agentkernel.kernel.spec import SandboxSpec
    from agentkernel.outcomes import Outcome

_HOMES = {
    "AgentKernelError": "agentkernel.errors",
    "AsyncHost": "agentkernel.client._async.host",
    "AsyncSandbox": "agentkernel.client._async.sandbox",
    "AsyncTransport": "agentkernel.client._async.transport",
    "CommandResult": "agentkernel.client.results",
    "ExecResult": "agentkernel.kernel.commands",
    "ExitStatus": "agentkernel.guest.processes",
    "Host": "agentkernel.client._sync.host",
    "Kernel": "agentkernel.kernel.kernel",
    "Outcome": "agentkernel.outcomes",
    "ProcessOptions": "agentkernel.guest.processes",
    "Runs": "agentkernel.kernel.runs",
    "Sandbox": "agentkernel.client._sync.sandbox",
    "SandboxSpec": "agentkernel.kernel.spec",
    "Template": "agentkernel.client.template",
    "Transport": "agentkernel.client._sync.transport",
    "arun": "agentkernel.client._async.runs:run",
    "run": "agentkernel.client._sync.runs",
}

__all__ = [
    "AgentKernelError",
    "AsyncHost",
    "AsyncSandbox",
    "AsyncTransport",
    "CommandResult",
    "ExecResult",
    "ExitStatus",
    "Host",
    "Kernel",
    "Outcome",
    "ProcessOptions",
    "Runs",
    "Sandbox",
    "SandboxSpec",
    "Template",
    "Transport",
    "arun",
    "run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkernel' has no attribute {name!r}")
    from importlib import import_module

    module, _, other = home.partition(":")
    return getattr(import_module(module), other or name)
