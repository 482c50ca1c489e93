"""Every error the project raises on purpose.

    AgentKernelError
    ├── InvalidInputError         invalid_input        the caller's words are wrong   (ValueError)
    ├── NotFoundError             not_found            no such sandbox, job, image
    ├── ConflictError             conflict             the state does not allow it now
    │   └── StateLockedError      state_locked         another process owns the state directory
    ├── UnsupportedError          unsupported          this backend can't; `hint` says which can
    ├── HostError                 host_forbids         the machine forbids what isolation needs
    ├── UnenforceableError        unenforceable        an explicit limit or policy can't be held
    ├── PolicyDeniedError         policy_denied        a rule said no            (PermissionError)
    ├── ResourceExhaustedError    resource_exhausted   no id range, disk or memory left
    ├── SandboxUnavailableError   sandbox_unavailable  the sandbox, not the command, failed
    │   ├── LaunchError           launch_failed        it never came up
    │   ├── GuestProtocolError    guest_protocol       the other end broke the protocol
    │   └── GuestTimeoutError     guest_timeout        agentd did not answer      (TimeoutError)
    ├── GuestFileError            file_error           a file call failed inside       (OSError)
    └── BuildError                build_failed         agentd could not be built

A command that fails is never an error: its exit code is a result. "The sandbox is unavailable",
"the command failed" and "a policy said no" therefore never look alike.
"""

from __future__ import annotations

from typing import Any, ClassVar


class AgentKernelError(Exception):
    """Base of the tree. `message` says what happened, `hint` what to do about it."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def to_dict(self) -> dict[str, Any]:
        """The shape every door shows: `--json`, the HTTP API, MCP."""
        body: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = self.details
        return body


class InvalidInputError(AgentKernelError, ValueError):
    code = "invalid_input"
    status = 400


class NotFoundError(AgentKernelError):
    code = "not_found"
    status = 404


class ConflictError(AgentKernelError):
    code = "conflict"
    status = 409


class StateLockedError(ConflictError):
    code = "state_locked"
    retryable = True


class UnsupportedError(AgentKernelError):
    code = "unsupported"
    status = 422


class HostError(AgentKernelError):
    code = "host_forbids"
    status = 422


class UnenforceableError(AgentKernelError):
    code = "unenforceable"
    status = 422


class PolicyDeniedError(AgentKernelError, PermissionError):
    code = "policy_denied"
    status = 403


class ResourceExhaustedError(AgentKernelError):
    code = "resource_exhausted"
    status = 507
    retryable = True


class SandboxUnavailableError(AgentKernelError):
    code = "sandbox_unavailable"
    status = 503


class LaunchError(SandboxUnavailableError):
    code = "launch_failed"


class GuestProtocolError(SandboxUnavailableError):
    code = "guest_protocol"


class GuestTimeoutError(SandboxUnavailableError, TimeoutError):
    code = "guest_timeout"
    status = 504
    retryable = True


class GuestFileError(AgentKernelError, OSError):
    code = "file_error"
    status = 422


class BuildError(AgentKernelError):
    code = "build_failed"


def all_error_types() -> list[type[AgentKernelError]]:
    """The closed list, root first, for the docs and the test that compares them."""
    found: list[type[AgentKernelError]] = [AgentKernelError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found
